"""A scorer for rewards.points.segmenter.command: what SAM 2 makes of the points that a completion names.

    pip install sam2          # the public package; it brings PyTorch
    bin/run exp=qwen2_5_vl_points vl.path=MODEL data.conversations.train=FILE rewards.points.segmenter.keep=true \
      'rewards.points.segmenter.command=[python3,docs/examples/vl/sam2_scorer.py,--checkpoint,sam2.1_hiera_tiny.pt]'

It reads one item a line: the picture in images, points (negative), positive_points and boxes of the completion, and in meta the
ground truth's mask, a PNG that is black outside of the object. SAM 2 gets the object's prompt and the negative points. Where
the completion has no positive point and no box, the prompt is that of meta (positive_points, box), else the box around the ground
truth. It writes one number a line: the IoU of SAM 2's mask with the ground truth (--reward iou), or how much the negative points
added to it (--reward gain, from -1 to 1). --random-weights runs a network that nobody trained, to try the plumbing.
"""
import argparse
import json
import sys

import numpy as np
import torch
from PIL import Image
from sam2.build_sam import build_sam2
from sam2.sam2_image_predictor import SAM2ImagePredictor


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--config", default="configs/sam2.1/sam2.1_hiera_t.yaml", help="of the package, that of the checkpoint")
    weights = p.add_mutually_exclusive_group(required=True)
    weights.add_argument("--checkpoint", help="a file of weights on disk, such as sam2.1_hiera_tiny.pt")
    weights.add_argument("--random-weights", action="store_true", help="no weights: random ones, from a fixed seed")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--reward", choices=["iou", "gain"], default="gain")
    p.add_argument("--coordinates", choices=["pixels", "unit", "thousand"], default="pixels", help="as rewards.points.coordinates")
    p.add_argument("--ground-truth", default="ground_truth_mask", help="key of the mask in meta")
    return p.parse_args()


def read_mask(path):
    """Returns what is neither black nor transparent, [height, width] booleans."""
    rgba = np.asarray(Image.open(path).convert("RGBA"))
    return (rgba[..., :3] > 0).any(-1) & (rgba[..., 3] > 0)


def iou(a, b):
    union = np.logical_or(a, b).sum()
    return float(np.logical_and(a, b).sum() / union) if union else 1.0


class Scorer:
    def __init__(self, args):
        torch.manual_seed(0)
        self.args = args
        self.predictor = SAM2ImagePredictor(build_sam2(args.config, args.checkpoint, device=args.device))
        self.picture = self.size = None  # the embedded one: a group's completions share it
        self.before = {}  # IoU without negative points, by picture and prompt

    def embed(self, path):
        if path != self.picture:
            image = np.array(Image.open(path).convert("RGB"))
            self.predictor.set_image(image)
            self.picture, self.size, self.before = path, image.shape[:2], {}
        return self.size  # height, width

    def scale(self, values, meta, height, width):
        """Returns coordinates in pixels of the picture, [n, 2] or [n, 4]."""
        full = {"unit": (1, 1), "thousand": (1000, 1000), "pixels": (meta.get("width") or width, meta.get("height") or height)}
        x = np.asarray(values, dtype=np.float32)
        per = np.asarray([width, height] * (x.shape[1] // 2), dtype=np.float32)
        return x * per / np.asarray(full[self.args.coordinates] * (x.shape[1] // 2), dtype=np.float32)

    def prompt(self, item, meta, truth, height, width):
        """Returns positive points [n, 2] and a box [4] or None: the completion's, else meta's, else the ground truth's box."""
        for of in (item, meta):
            points, boxes = of.get("positive_points") or [], of.get("boxes") or ([of["box"]] if of.get("box") else [])
            if points or boxes:
                box = self.scale(boxes[:1], meta, height, width)[0] if boxes else None
                return (self.scale(points, meta, height, width) if points else np.zeros((0, 2), np.float32)), box
        ys, xs = np.nonzero(truth)
        box = np.asarray([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1], np.float32) if len(xs) else None
        return np.zeros((0, 2), np.float32), box

    def segment(self, positive, negative, box):
        points = np.concatenate([positive, negative])
        labels = np.asarray([1] * len(positive) + [0] * len(negative))
        has = len(points) > 0
        masks, _, _ = self.predictor.predict(points if has else None, labels if has else None, box=box, multimask_output=False)
        return masks[0] > 0

    def score(self, item):
        meta = item.get("meta") or {}
        if not item.get("images"):
            raise ValueError("the item has no picture: want one in images")
        if self.args.ground_truth not in meta:
            raise ValueError(f"meta has no {self.args.ground_truth}: want the path of the object's mask")
        height, width = self.embed(item["images"][0])
        truth = read_mask(meta[self.args.ground_truth])
        if truth.shape != (height, width):
            truth = np.asarray(Image.fromarray(truth).resize((width, height), Image.NEAREST))
        positive, box = self.prompt(item, meta, truth, height, width)
        if box is None and not len(positive):
            return 0.0  # nothing to look for
        negative = self.scale(item["points"], meta, height, width) if item.get("points") else np.zeros((0, 2), np.float32)
        after = iou(self.segment(positive, negative, box), truth)
        if self.args.reward == "iou":
            return after
        key = (meta[self.args.ground_truth], positive.tobytes(), None if box is None else box.tobytes())
        if key not in self.before:
            self.before[key] = iou(self.segment(positive, np.zeros((0, 2), np.float32), box), truth)
        return after - self.before[key]


def main():
    scorer = Scorer(parse_args())
    with torch.inference_mode():
        for line in sys.stdin:
            print(scorer.score(json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
