// The part of the editor's interface that packaging/editors/vscode/extension.js uses, with a script: node fake_vscode.js EXTENSION FTC FILE
"use strict";
const fs = require("fs"), path = require("path"), Module = require("module");
const [extension, ftc, file] = process.argv.slice(2);

class Plain {
  constructor(...parts) {
    this.parts = parts;
  }
}
class Position {
  constructor(line, character) {
    Object.assign(this, { line, character });
  }
}
class Range {
  constructor(start, end) {
    Object.assign(this, { start, end });
  }
}
class Diagnostic {
  constructor(range, message, severity) {
    Object.assign(this, { range, message, severity });
  }
}
class WorkspaceEdit {
  constructor() {
    this.edits = [];
  }
  replace(...edit) {
    this.edits.push(edit);
  }
}
const uri = { toString: () => "file://" + file };
const document = { uri, languageId: "ft", version: 1, text: fs.readFileSync(file, "utf8"), getText() { return this.text; } };
const provided = {}, events = {}, told = [];
const register = (name) => (language, provider) => { provided[name] = provider; return {}; };
const on = (name) => (handler) => { events[name] = handler; return {}; };
let wake = () => {};
const vscode = {
  Position, Range, Diagnostic, WorkspaceEdit, Location: Plain, MarkdownString: Plain, Hover: Plain, CompletionItem: Plain, DocumentSymbol: Plain, DocumentHighlight: Plain,
  DiagnosticRelatedInformation: Plain,
  Uri: { parse: (text) => ({ toString: () => text }) },
  languages: {
    createDiagnosticCollection: () => ({ set: (at, list) => { told.push(list); wake(); }, clear: () => {} }),
    registerHoverProvider: register("hover"), registerCompletionItemProvider: register("completion"), registerDefinitionProvider: register("definition"),
    registerReferenceProvider: register("references"), registerDocumentHighlightProvider: register("highlights"), registerDocumentSymbolProvider: register("symbols"),
    registerRenameProvider: register("rename"),
  },
  workspace: {
    textDocuments: [document], getConfiguration: () => ({ get: () => ftc }), onDidOpenTextDocument: on("open"), onDidChangeTextDocument: on("change"),
    onDidCloseTextDocument: on("close"), onDidSaveTextDocument: on("save"),
  },
  window: { showErrorMessage: (text) => { console.log(JSON.stringify({ error: text })); process.exit(1); } },
};
const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));

const next = async () => {
  while (!told.length) await new Promise((resolve) => { wake = resolve; });
  return told.shift();
};
const at = (before) => {
  const lines = document.text.slice(0, document.text.indexOf(before) + before.length).split("\n");
  return new Position(lines.length - 1, lines[lines.length - 1].length);
};

(async () => {
  const { activate, deactivate } = require(path.resolve(extension));
  await activate({ subscriptions: [] });
  const out = { first: (await next()).map((one) => one.message) };
  const model = at("model ");
  out.hover = (await provided.hover.provideHover(document, model)).parts[0].parts[0];
  out.labels = (await provided.completion.provideCompletionItems(document, at("loss = "))).map((item) => item.parts[0]);
  out.definition = (await provided.definition.provideDefinition(document, at("(h)"))) !== undefined;
  out.symbols = (await provided.symbols.provideDocumentSymbols(document)).map((one) => one.parts[0]);
  out.references = (await provided.references.provideReferences(document, at("hyper "), { includeDeclaration: true })).length;
  out.highlights = (await provided.highlights.provideDocumentHighlights(document, at("hyper "))).length;
  out.rename = (await provided.rename.provideRenameEdits(document, at("hyper "), "units")).edits.length;
  out.refused = await provided.rename.provideRenameEdits(document, at("hyper "), "1").catch((error) => error.message);
  const range = new Range(at("loss = "), at("loss = mean"));
  document.text = document.text.replace("loss = mean", "loss = maen");
  document.version++;
  events.change({ document, contentChanges: [{ range, text: "maen" }] });
  const [second] = await next();
  out.second = [second.message, second.severity, second.range.start.line, second.range.start.character, second.range.end.character];
  await deactivate();
  console.log(JSON.stringify(out));
})();
