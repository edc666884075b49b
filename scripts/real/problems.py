"""Writes sums and word problems as conversations: problems.py FOLDER [SEED] makes train.jsonl, val.jsonl and heldout.jsonl, and wrong.jsonl:
the training problems with each other's answers. It makes the same for the same seed. A fact such as 7 + 5 or 12 - 5 belongs to one of the files alone, in words or bare and in either order: who answers held-out problems
has not learned them by heart.
"""

import json
import pathlib
import random
import sys

COUNTS = {"train": 192, "val": 16, "heldout": 120}
SHARES = {"train": 0.6, "val": 0.1, "heldout": 0.3}  # of the facts
NAMES = ["Mia", "Ben", "Sara", "Tom", "Lena", "Omar", "Ruth", "Ivan"]
THINGS = ["apples", "books", "coins", "pencils", "shells", "stamps", "marbles", "cards"]
WORDS = {
    "+": [
        "{who} has {a} {things} and buys {b} more. How many {things} does {who} have now?",
        "{who} finds {a} {things} in the morning and {b} in the evening. How many {things} does {who} find in all?",
        "There are {a} {things} in a box and {b} in a bag. How many {things} are there in all?",
        "{who} has {a} {things}. {other} has {b}. How many {things} do they have together?",
    ],
    "-": [
        "{who} has {a} {things} and gives away {b}. How many {things} are left?",
        "{who} had {a} {things} and lost {b}. How many {things} does {who} have now?",
        "There are {a} {things} in a box. {who} takes out {b}. How many {things} are in the box now?",
        "{who} has {a} {things}. {other} has {b}. How many more {things} does {who} have?",
    ],
}
# What every prompt begins with: the task, and a solved problem that shows how an answer looks. Short, for it is computed with every question.
SYSTEM = "Write the sum, then the number as <answer>number</answer>."
SHOWN, SOLVED = "Eva has 9 pens and loses 3. How many are left?", "9 - 3 = 6 <answer>6</answer>"


def facts():
    """Sums of two numbers up to 15, the smaller first, and differences of numbers up to 20, without the one shown."""
    sums = [("+", a, b) for a in range(1, 16) for b in range(a, 16)]
    differences = [("-", a, b) for a in range(2, 21) for b in range(1, a)]
    return [f for f in sums + differences if f != ("-", 9, 3)]


def problem(fact, draw):
    """A question about a fact, bare or in words, and the completion wanted."""
    sign, a, b = fact
    if sign == "+" and draw.random() < 0.5:
        a, b = b, a
    result = a + b if sign == "+" else a - b
    answer = f"{a} {sign} {b} = {result} <answer>{result}</answer>"
    if draw.random() < 0.5:
        return f"What is {a} {sign} {b}?", answer
    who, other = draw.sample(NAMES, 2)
    return draw.choice(WORDS[sign]).format(who=who, other=other, a=a, b=b, things=draw.choice(THINGS)), answer


def record(name, question, answer):
    said = [("system", SYSTEM), ("human", SHOWN), ("gpt", SOLVED), ("human", question), ("gpt", answer)]
    return {"id": name, "conversations": [{"from": who, "value": text} for who, text in said]}


def problems(seed):
    """The records of each file."""
    draw = random.Random(seed)
    left = facts()
    draw.shuffle(left)
    every, out = len(left), {}
    for split, share in SHARES.items():
        own = [left.pop() for _ in range(min(len(left), round(share * every)))]
        asked = {}
        while len(asked) < COUNTS[split]:
            question, answer = problem(draw.choice(own), draw)
            asked.setdefault(question, answer)
        out[split] = [record(f"{split}-{i}", *each) for i, each in enumerate(asked.items(), 1)]
        if split == "train":
            trained = asked
    answers = swapped([*trained.values()], draw)
    out["wrong"] = [record(f"wrong-{i}", *each) for i, each in enumerate(zip(trained, answers), 1)]
    return out


def swapped(answers, draw):
    """The same answers in another order, in which none has the number that it had."""
    numbers = [a.split("<answer>")[1] for a in answers]
    order = draw.sample(range(len(answers)), len(answers))
    for i in range(len(order)):  # an answer that is right where it lies changes places with one that is wrong in both
        while numbers[order[i]] == numbers[i]:
            j = draw.randrange(len(order))
            if numbers[order[j]] != numbers[i] and numbers[order[i]] != numbers[j]:
                order[i], order[j] = order[j], order[i]
    return [answers[k] for k in order]


def main():
    folder, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    folder.mkdir(parents=True, exist_ok=True)
    for split, records in problems(seed).items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")


if __name__ == "__main__":
    main()
