"""What the problems of make real must be: python3 scripts/real/test_problems.py"""

import itertools
import re
import sys
import unittest

sys.dont_write_bytecode = True
import problems


def facts(records):
    """The sums and differences of records, the two numbers of a sum in either order."""
    out = set()
    for r in records:
        a, sign, b, result, answer = re.fullmatch(r"(\d+) ([+-]) (\d+) = (\d+) <answer>(\d+)</answer>", r["conversations"][-1]["value"]).groups()
        a, b = int(a), int(b)
        assert int(result) == int(answer) == (a + b if sign == "+" else a - b) >= 0, r
        assert {str(a), str(b)} <= set(re.findall(r"\d+", r["conversations"][-2]["value"])), r
        out.add((sign, *sorted((a, b))))
    return out


class Problems(unittest.TestCase):
    def test_same_for_the_same_seed(self):
        self.assertEqual(problems.problems(3), problems.problems(3))
        self.assertNotEqual(problems.problems(3), problems.problems(4))

    def test_held_out_is_held_out(self):
        for seed in range(20):
            made = problems.problems(seed)
            wrong = made.pop("wrong")
            self.assertEqual({split: len(records) for split, records in made.items()}, problems.COUNTS)
            answers, swapped = ([r["conversations"][-1]["value"] for r in records] for records in (made["train"], wrong))
            self.assertEqual(sorted(answers), sorted(swapped))
            self.assertEqual([r["conversations"][:-1] for r in made["train"]], [r["conversations"][:-1] for r in wrong])
            same = [a for a, b in zip(answers, swapped) if a.split("<answer>")[1] == b.split("<answer>")[1]]
            self.assertEqual(same, [], f"seed {seed}: these labels are right")
            for a, b in itertools.combinations(made, 2):
                self.assertFalse(facts(made[a]) & facts(made[b]), f"seed {seed}: {a} and {b} share a fact")


if __name__ == "__main__":
    unittest.main()
