"""Writes what a pipeline of your own would: beams.json and emb.npy, with the standard library alone.

    python3 docs/examples/own_beams.py FOLDER

800 items have a topic, which their embeddings show strongly, and a kind of question, which they show less. A
demonstration helps when its kind is the query's; similarity looks at the topic first. So there is something to learn.
"""
import json
import os
import random
import struct
import sys

ITEMS, DIM, TOPICS, KINDS, BEAMS = 800, 16, 12, 4, 8
rng = random.Random(0)
folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)

topics = [[0.0] * KINDS + [rng.gauss(0, 1.0) for _ in range(DIM - KINDS)] for _ in range(TOPICS)]
kinds = [[1.5 if d == k else 0.0 for d in range(DIM)] for k in range(KINDS)]
topic = [rng.randrange(TOPICS) for _ in range(ITEMS)]
kind = [rng.randrange(KINDS) for _ in range(ITEMS)]
rows = [[topics[topic[i]][d] + kinds[kind[i]][d] + rng.gauss(0, 0.2) for d in range(DIM)] for i in range(ITEMS)]

# emb.npy: row i belongs to item i.
header = str({"descr": "<f4", "fortran_order": False, "shape": (ITEMS, DIM)}).encode()
header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
with open(os.path.join(folder, "emb.npy"), "wb") as f:
    f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    for row in rows:
        f.write(struct.pack(f"<{DIM}f", *row))

# beams.json: for each query the beams [demonstration, demonstration, query] and their scores, best first.
beams = {}
for query in range(ITEMS):
    scored = []
    for _ in range(BEAMS):
        a, b = rng.sample([i for i in range(ITEMS) if i != query], 2)
        score = 0.4 * (kind[a] == kind[query]) + 0.4 * (kind[b] == kind[query]) + 0.2 * rng.random()
        scored.append((round(score, 4), [a, b, query]))
    scored.sort(reverse=True)
    beams[str(query)] = {"id_list": [beam for _, beam in scored], "score_list": [score for score, _ in scored]}
with open(os.path.join(folder, "beams.json"), "w") as f:
    json.dump(beams, f)
