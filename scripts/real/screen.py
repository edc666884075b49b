"""The last screen of make real: screen.py SWEEP prints the verdict of the run with the true rewards on held-out problems, the sweep's own verdicts on
the right answers of all three runs, and two lines that say it in words."""

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
    made = subprocess.run([RUN, "report", sweep, "--json"], capture_output=True, text=True, check=True)
    table = next(t for t in json.loads(made.stdout)["tables"] if t["title"] == "Verdicts by accuracy")
    print(verdict(sweep / "0"))  # control=none
    print("\nRight answers on held-out problems, verdicts corrected for all comparisons of the sweep:")
    for row in [table["columns"], *table["rows"]]:
        print("  {:24} {:10} {:42} {}".format(*row).rstrip())
    of = {row[0]: row[1:] for row in table["rows"]}
    print(f"\nSums: right answers {of['initial policy'][0]} before, {of['control=none'][0]} after: {of['control=none'][1]}.")
    if table["rows"][0][0] == "control=none":
        print(f"Without the true rewards the same training falls behind that: {of['control=majority'][2]} by the most frequent answer of a group, "
              f"{of['control=placebo_within'][2]} by shuffled rewards.")
    else:
        print(f"The true rewards did not do it: {table['rows'][0][0]} is the best.")


if __name__ == "__main__":
    main()
