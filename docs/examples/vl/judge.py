"""A scorer for rewards.external.command: one completion a line on stdin, one number a line on stdout.

    rewards.external.weight=1 'rewards.external.command=[python3,docs/examples/vl/judge.py]' rewards.external.keep=true
"""
import json
import sys

for line in sys.stdin:
    item = json.loads(line)  # prompt, completion, answer, reference, answers, images, meta
    words = item["answer"].split()
    print(1.0 if 1 <= len(words) <= 3 else 0.0, flush=True)  # short answers only
