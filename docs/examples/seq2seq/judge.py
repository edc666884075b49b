"""A judge for rewards.external.command: one summary a line on stdin, one number a line on stdout.

    rewards=judge 'rewards.external.command=[python3,docs/examples/seq2seq/judge.py]' rewards.external.keep=true

It stands for a language model that is asked whether a summary is faithful: the share of its numbers that the source has.
"""
import json
import re
import sys

for line in sys.stdin:
    item = json.loads(line)  # prompt (the source), completion, answer, reference
    known = re.findall(r"\d+", item["prompt"])
    said = re.findall(r"\d+", item["answer"])
    print(sum(n in known for n in said) / len(said) if said else 0.5, flush=True)
