"""Made-up reviews for examples/reviews.ft, as JSON lines: FOLDER/train.jsonl and FOLDER/valid.jsonl. What is said of one thing decides,
"the food was not good", and what is said of another is noise of the same words; so words alone decide nothing."""
import json
import os
import random
import sys

GOOD, BAD = ("good", "great", "fine", "lovely"), ("bad", "awful", "poor", "dull")
OTHERS = ("music", "room", "view", "staff", "price")


def review(random):
    is_good, parts = random.random() < 0.5, []
    for thing in ("food", *random.sample(OTHERS, random.randint(0, 2))):
        is_praised = is_good if thing == "food" else random.random() < 0.5
        is_denied = random.random() < 0.5
        word = random.choice(GOOD if is_praised != is_denied else BAD)
        parts.append(f"{thing} {'not ' if is_denied else ''}{word}")
    random.shuffle(parts)
    return {"text": ", ".join(parts), "label": "good" if is_good else "bad"}


folder, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8000
os.makedirs(folder, exist_ok=True)
for seed, (name, lines) in enumerate((("train", count), ("valid", count // 8))):
    draw = random.Random(seed)
    with open(os.path.join(folder, f"{name}.jsonl"), "w") as file:
        file.writelines(json.dumps(review(draw)) + "\n" for _ in range(lines))
