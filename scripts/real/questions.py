"""Writes text questions whose rule only a demonstration tells: questions.py OUT.jsonl [SEED] makes OUT.jsonl, records for data.records_icl:
solved ones to show, and held-out ones ("split": "val"). OUT.dev.jsonl has the same solved ones and other held-out ones: settings are chosen
there. It makes the same for the same seed.

A question is an item and a code word, in one of six wordings: "Do job cedar for: Spain". Ten families, one a code word, of four kinds of items:

    things     quote      apple → <apple>            output format
               twice      apple → apple apple        string operation
               kind       apple → fruit              word class
    people     surname    Mia Brown → Brown          string operation
               swap       Mia Brown → Brown Mia      string operation
               login      Mia Brown → mia.brown      output format
    countries  hello      Spain → Hello Spain        output format
               language   Spain → Spanish            mapping
    amounts    small      3 km → 3000 m              units
               next       3 km → 4 km                hidden rule

Which code word stands for which family is drawn by the seed: no question says what is wanted, and an example with the same code word does. Examples
of other families in the same words, or about the same kind of item, look as similar and mislead. An item belongs to one of the splits alone, so
nothing is learned by heart. Answers stand ten times, as ten annotators would give them: VQA accuracy then is 1 for exactly that answer and 0 for
any other.
"""

import json
import pathlib
import random
import sys

COUNTS = {"train": 24, "val": 16, "dev": 8}  # questions a family
CODES = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "ivory", "jolly", "karma", "lunar", "maple", "noble", "ocean", "quartz"]
WORDINGS = [
    "Do job {code} for: {item}",
    "{item}. Apply {code}.",
    "Method: {code}. Input: {item}.",
    "{code} / {item}",
    "Run {code} on {item}, please.",
    "Given {item}, {code} makes?",
]
KINDS = {
    "fruit": "apple banana cherry grape lemon melon peach pear",
    "animal": "cat cow dog horse lion pig sheep wolf",
    "color": "black blue brown green orange pink red yellow",
    "clothing": "coat dress hat jacket scarf shirt skirt sock",
    "furniture": "bed bench chair couch desk shelf sofa table",
    "vehicle": "bike boat bus car plane ship train truck",
}
FIRST = ["Anna", "Ben", "Carl", "Dora", "Emma", "Frank", "Grace", "Henry", "Ivan", "Jane", "Kate", "Leo", "Mary", "Nick", "Olga", "Paul"]
LAST = ["Adams", "Baker", "Clark", "Davis", "Evans", "Fox", "Green", "Hill", "King", "Lee", "Moore", "Nash", "Owen", "Price", "Reed", "Stone"]
COUNTRIES = """Albania Albanian, Argentina Spanish, Australia English, Austria German, Brazil Portuguese, Bulgaria Bulgarian, Canada English, Chile
Spanish, China Chinese, Colombia Spanish, Croatia Croatian, Cuba Spanish, Denmark Danish, Ecuador Spanish, Egypt Arabic, England English,
Estonia Estonian, Ethiopia Amharic, Finland Finnish, France French, Germany German, Greece Greek, Hungary Hungarian, Iceland Icelandic,
Indonesia Indonesian, Iran Persian, Iraq Arabic, Ireland English, Israel Hebrew, Italy Italian, Japan Japanese, Jordan Arabic, Latvia
Latvian, Lebanon Arabic, Mexico Spanish, Norway Norwegian, Peru Spanish, Poland Polish, Portugal Portuguese, Romania Romanian, Russia
Russian, Scotland English, Spain Spanish, Sweden Swedish, Thailand Thai, Turkey Turkish, Ukraine Ukrainian, Vietnam Vietnamese"""
KIND_OF = {thing: kind for kind, things in KINDS.items() for thing in things.split()}
LANGUAGE_OF = dict(each.split() for each in COUNTRIES.split(","))
SMALL = {"km": "m", "kg": "g"}
ITEMS = {
    "things": [*KIND_OF],
    "people": [f"{first} {last}" for first in FIRST for last in LAST],
    "countries": [*LANGUAGE_OF],
    "amounts": [f"{n} {unit}" for n in range(2, 60) for unit in SMALL],
}
FAMILIES = {
    "quote": ("things", lambda item: f"<{item}>"),
    "twice": ("things", lambda item: f"{item} {item}"),
    "kind": ("things", KIND_OF.get),
    "surname": ("people", lambda item: item.split()[1]),
    "swap": ("people", lambda item: " ".join(reversed(item.split()))),
    "login": ("people", lambda item: item.lower().replace(" ", ".")),
    "hello": ("countries", lambda item: f"Hello {item}"),
    "language": ("countries", LANGUAGE_OF.get),
    "small": ("amounts", lambda item: f"{item.split()[0]}000 {SMALL[item.split()[1]]}"),
    "next": ("amounts", lambda item: f"{int(item.split()[0]) + 1} {item.split()[1]}"),
}


def questions(seed):
    """The family, item, question and answer of each split's questions."""
    draw = random.Random(seed)
    codes = dict(zip(FAMILIES, draw.sample(CODES, len(FAMILIES))))
    own = {}  # items by kind and split
    for kind, items in ITEMS.items():
        left = draw.sample(items, len(items))
        own[kind] = {split: [left.pop() for _ in range(count)] for split, count in COUNTS.items()}
    out = {}
    for split in COUNTS:
        made = [
            (name, item, draw.choice(WORDINGS).format(code=codes[name], item=item), answer(item))
            for name, (kind, answer) in FAMILIES.items()
            for item in own[kind][split]
        ]
        out[split] = draw.sample(made, len(made))
    return out


def records(solved, asked):
    """Records of data.records_icl, the held-out ones last."""
    both = [(q, "train") for q in solved] + [(q, "val") for q in asked]
    return [{"id": i, "question": q, "answers": [a] * 10, "split": split} for i, ((_, _, q, a), split) in enumerate(both)]


def main():
    out, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    out.parent.mkdir(parents=True, exist_ok=True)
    made = questions(seed)
    for path, split in ((out, "val"), (out.with_suffix(".dev" + out.suffix), "dev")):
        path.write_text("".join(json.dumps(r) + "\n" for r in records(made["train"], made[split])), encoding="utf-8")


if __name__ == "__main__":
    main()
