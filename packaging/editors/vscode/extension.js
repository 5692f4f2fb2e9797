// Starts `ftc --lsp` and passes on what it and the editor say to each other. There are no dependencies, so that
// copying this folder is all there is to install.
"use strict";
const vscode = require("vscode");
const { spawn } = require("child_process");

const LANGUAGE = "ft", MOST_STARTS = 4;

class Server {
  constructor(command, told, ended) {
    this.told = told; // what the server says unasked
    this.waiting = new Map();
    this.last = 0;
    this.rest = Buffer.alloc(0);
    this.process = spawn(command, ["--lsp"], { stdio: ["pipe", "pipe", "ignore"] });
    this.process.stdout.on("data", (bytes) => this.take(bytes));
    this.process.stdin.on("error", () => {});
    this.process.on("error", (error) => this.end(() => ended(error)));
    this.process.on("exit", () => this.end(() => ended(null)));
  }

  end(after) {
    for (const answer of this.waiting.values()) answer(null);
    this.waiting.clear();
    if (!this.is_over) after();
    this.is_over = true;
  }

  send(message) {
    if (this.is_over) return;
    const body = Buffer.from(JSON.stringify({ jsonrpc: "2.0", ...message }));
    this.process.stdin.write(`Content-Length: ${body.length}\r\n\r\n`);
    this.process.stdin.write(body);
  }

  tell(method, params) {
    this.send({ method, params });
  }

  ask(method, params, cancelled) {
    const id = ++this.last;
    if (this.is_over) return Promise.resolve(null);
    return new Promise((resolve) => {
      this.waiting.set(id, resolve);
      this.send({ id, method, params });
      if (cancelled) cancelled.onCancellationRequested(() => this.tell("$/cancelRequest", { id }));
    });
  }

  take(bytes) {
    this.rest = Buffer.concat([this.rest, bytes]);
    for (;;) {
      const begin = this.rest.indexOf("\r\n\r\n");
      const length = begin < 0 ? null : /Content-Length: *(\d+)/i.exec(this.rest.toString("latin1", 0, begin));
      if (!length || this.rest.length < begin + 4 + Number(length[1])) return;
      const end = begin + 4 + Number(length[1]);
      const message = JSON.parse(this.rest.toString("utf8", begin + 4, end));
      this.rest = this.rest.subarray(end);
      if (message.method) {
        this.told(message.method, message.params);
      } else if (this.waiting.has(message.id)) {
        this.waiting.get(message.id)(message.error ? { error: message.error } : message.result);
        this.waiting.delete(message.id);
      }
    }
  }
}

const toPosition = (p) => new vscode.Position(p.line, p.character);
const toRange = (r) => new vscode.Range(toPosition(r.start), toPosition(r.end));
const toLocation = (l) => new vscode.Location(vscode.Uri.parse(l.uri), toRange(l.range));
const toMarkdown = (m) => new vscode.MarkdownString(m.value);
const fromPosition = (p) => ({ line: p.line, character: p.character });
const place = (document, position) => ({ textDocument: { uri: document.uri.toString() }, position: fromPosition(position) });
const isOurs = (document) => document.languageId === LANGUAGE;

let server = null, found = null, starts = 0, is_stopping = false;

function open(document) {
  if (server && isOurs(document))
    server.tell("textDocument/didOpen", { textDocument: { uri: document.uri.toString(), languageId: LANGUAGE, version: document.version, text: document.getText() } });
}

function showMessages(params) {
  const uri = vscode.Uri.parse(params.uri);
  found.set(uri, params.diagnostics.map((one) => {
    const shown = new vscode.Diagnostic(toRange(one.range), one.message, one.severity - 1);
    shown.source = one.source;
    shown.relatedInformation = (one.relatedInformation || []).map((note) => new vscode.DiagnosticRelatedInformation(toLocation(note.location), note.message));
    return shown;
  }));
}

async function start() {
  const command = vscode.workspace.getConfiguration("ft").get("path") || "ftc";
  if (++starts > MOST_STARTS) return;
  const one = new Server(command, (method, params) => method === "textDocument/publishDiagnostics" && showMessages(params), (error) => {
    server = null;
    found.clear();
    if (error) vscode.window.showErrorMessage(`ft: ${command} cannot be started (${error.message}). The setting ft.path names it.`);
    else if (!is_stopping) start();
  });
  const capabilities = { general: { positionEncodings: ["utf-16"] }, textDocument: { publishDiagnostics: { relatedInformation: true } } };
  const hello = await one.ask("initialize", { processId: process.pid, rootUri: null, capabilities });
  if (!hello || hello.error) return;
  server = one;
  server.tell("initialized", {});
  vscode.workspace.textDocuments.forEach(open);
}

async function ask(method, params, token) {
  const answer = server ? await server.ask(`textDocument/${method}`, params, token) : null;
  return answer && answer.error ? null : answer;
}

function toItem(item) {
  const shown = new vscode.CompletionItem(item.label, item.kind - 1);
  shown.detail = item.detail;
  if (item.documentation) shown.documentation = toMarkdown(item.documentation);
  return shown;
}

function toSymbol(one) {
  const shown = new vscode.DocumentSymbol(one.name, one.detail, one.kind - 1, toRange(one.range), toRange(one.selectionRange));
  shown.children = (one.children || []).map(toSymbol);
  return shown;
}

async function rename(document, position, newName) {
  const answer = server ? await server.ask("textDocument/rename", { ...place(document, position), newName }) : null;
  if (!answer) return null;
  if (answer.error) throw new Error(answer.error.message);
  const edit = new vscode.WorkspaceEdit();
  for (const [uri, edits] of Object.entries(answer.changes)) for (const one of edits) edit.replace(vscode.Uri.parse(uri), toRange(one.range), one.newText);
  return edit;
}

function providers() {
  const { languages } = vscode;
  const many = async (method, params, token, to) => ((await ask(method, params, token)) || []).map(to);
  return [
    languages.registerHoverProvider(LANGUAGE, { provideHover: async (document, position, token) => {
      const answer = await ask("hover", place(document, position), token);
      return answer && new vscode.Hover(toMarkdown(answer.contents), toRange(answer.range));
    } }),
    languages.registerCompletionItemProvider(LANGUAGE, { provideCompletionItems: async (document, position, token) => {
      const answer = await ask("completion", place(document, position), token);
      return answer && answer.items.map(toItem);
    } }, ".", "|", "=", "("),
    languages.registerDefinitionProvider(LANGUAGE, { provideDefinition: async (document, position, token) => {
      const answer = await ask("definition", place(document, position), token);
      return answer && toLocation(answer);
    } }),
    languages.registerReferenceProvider(LANGUAGE, { provideReferences: (document, position, context, token) => many("references", { ...place(document, position), context: { includeDeclaration: context.includeDeclaration } }, token, toLocation) }),
    languages.registerDocumentHighlightProvider(LANGUAGE, { provideDocumentHighlights: (document, position, token) => many("documentHighlight", place(document, position), token, (one) => new vscode.DocumentHighlight(toRange(one.range), one.kind - 1)) }),
    languages.registerDocumentSymbolProvider(LANGUAGE, { provideDocumentSymbols: (document, token) => many("documentSymbol", { textDocument: { uri: document.uri.toString() } }, token, toSymbol) }),
    languages.registerRenameProvider(LANGUAGE, { provideRenameEdits: rename }),
  ];
}

function changed(event) {
  if (!server || !isOurs(event.document) || !event.contentChanges.length) return;
  const contentChanges = event.contentChanges.map((one) => ({ range: { start: fromPosition(one.range.start), end: fromPosition(one.range.end) }, text: one.text }));
  server.tell("textDocument/didChange", { textDocument: { uri: event.document.uri.toString(), version: event.document.version }, contentChanges });
}

function about(method) {
  return (document) => server && isOurs(document) && server.tell(`textDocument/${method}`, { textDocument: { uri: document.uri.toString() } });
}

function activate(context) {
  const { workspace } = vscode;
  found = vscode.languages.createDiagnosticCollection(LANGUAGE);
  starts = 0;
  is_stopping = false;
  context.subscriptions.push(found, ...providers(), workspace.onDidOpenTextDocument(open), workspace.onDidChangeTextDocument(changed),
    workspace.onDidCloseTextDocument(about("didClose")), workspace.onDidSaveTextDocument(about("didSave")));
  return start();
}

async function deactivate() {
  is_stopping = true;
  if (!server) return;
  const one = server;
  server = null;
  await one.ask("shutdown");
  one.tell("exit");
}

module.exports = { activate, deactivate };
