"""Writes rewardutil/testdata/cider.json: captions as Stanford's PTBTokenizer splits them and CIDEr-D as the public evaluation of COCO
captions computes it; and caption_evaluation.json: an annotation file and a result file with what that evaluation makes of them. Needs Java and the package pycocoevalcap, which brings the tokenizer's jar: cider.py FOLDER_OF_PYCOCOEVALCAP"""

import json
import pathlib
import random
import subprocess
import sys

import numpy

root = pathlib.Path(__file__).resolve().parents[2]
coco = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(coco))
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.tokenizer.ptbtokenizer import PUNCTUATIONS, PTBTokenizer

CAPTIONS = (root / "rewardutil" / "testdata" / "captions.txt").read_text().splitlines()


def tokens(captions):
    jar = coco / "pycocoevalcap" / "tokenizer" / "stanford-corenlp-3.4.1.jar"
    done = subprocess.run(["java", "-cp", jar, "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"],
                          input="\n".join(captions), capture_output=True, text=True, check=True)
    lines = done.stdout.rstrip("\n").split("\n")
    assert len(lines) == len(captions)
    return [[w for w in line.split() if w not in PUNCTUATIONS] for line in lines]


split = tokens(CAPTIONS)
draw = random.Random(1)
words = [w for t in split for w in t]
items = []
for i in range(40):
    refs = [draw.choice(split) for _ in range(draw.randint(1, 5))]
    one = list(draw.choice(refs))
    for _ in range(draw.randint(0, 4)):  # a caption near one of its references
        at = draw.randrange(len(one) + 1)
        one[at : at + draw.randint(0, 1)] = [draw.choice(words)] if draw.random() < 0.7 else []
    items.append({"caption": " ".join(one), "references": [" ".join(r) for r in refs]})
gts = {i: x["references"] for i, x in enumerate(items)}
res = {i: [x["caption"]] for i, x in enumerate(items)}
_, scores = Cider().compute_score(gts, res)
for x, s in zip(items, numpy.asarray(scores, dtype=numpy.float64)):
    x["cider"] = float(s)
out = [json.dumps({"captions": len(CAPTIONS)})[:-1] + ', "tokens": [' + ",\n".join(json.dumps(t) for t in split) + "],",
       '"items": [' + ",\n".join(json.dumps(x) for x in items) + "]}"]
(root / "rewardutil" / "testdata" / "cider.json").write_text("\n".join(out) + "\n")

annotations, results = [], []
for image in range(700, 724):
    refs = [draw.choice(CAPTIONS) for _ in range(draw.randint(2, 5))]
    annotations += [{"image_id": image, "id": 10 * image + k, "caption": r} for k, r in enumerate(refs)]
    said = draw.choice(refs).split()
    for _ in range(draw.randint(0, 3)):
        said[draw.randrange(len(said))] = draw.choice(draw.choice(CAPTIONS).split())
    if image % 6:  # the others have no result
        results.append({"image_id": image, "caption": " ".join(said)})
split = PTBTokenizer().tokenize
ids = [r["image_id"] for r in results]
gts = split({i: [a for a in annotations if a["image_id"] == i] for i in ids})
mean, scores = Cider().compute_score(gts, split({r["image_id"]: [r] for r in results}))
value = {"annotations": annotations, "results": results, "cider": float(mean), "perImage": dict(zip(ids, map(float, scores)))}
(root / "rewardutil" / "testdata" / "caption_evaluation.json").write_text(json.dumps(value, indent=1) + "\n")
