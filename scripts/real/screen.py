"""The last screen of make real: screen.py SWEEP prints the verdict of the run with the true rewards on held-out problems, the three terms of its
gain in right answers, as `bin/run report` splits it, and two lines that say it in words."""

import json
import pathlib
import subprocess
import sys

RUN = pathlib.Path(__file__).resolve().parents[2] / "bin" / "run"


def verdict(folder):
    """The end of a run's log: its table of policies and what stands below."""
    lines = (folder / "job.log").read_text(encoding="utf-8").splitlines()
    start = max(i for i, line in enumerate(lines) if line.startswith("reward on eval, held out"))
    return "\n".join(lines[start:])


def main():
    sweep = pathlib.Path(sys.argv[1])
    runs = [sweep / str(i) for i in range(3)]  # control=none, placebo_within, majority
    made = subprocess.run([RUN, "report", *runs, "--json"], capture_output=True, text=True, check=True)
    arms, terms = (t["rows"] for t in json.loads(made.stdout)["tables"] if t["title"] == "Accuracy on eval")
    score = {row[0]: row[2] for row in arms}
    print(verdict(runs[0]))
    print("\nRight answers on held-out problems, three terms of the gain:")
    for term, _, gain, *_ in terms:
        print(f"  {term:36} {gain}")
    print(f"\nSums: right answers {score['initial policy']} before, {score['arm A']} after; gain {arms[0][4]}.")
    print(f"Of it the true rewards did {terms[2][2]}; the same training by shuffled rewards, or by the most frequent answer, did the rest. "
          "One seed; 95 % intervals, uncorrected.")


if __name__ == "__main__":
    main()
