"""What the questions of exp=icl_text must be: python3 scripts/real/test_questions.py"""

import itertools
import re
import sys
import unittest

sys.dont_write_bytecode = True
import questions


class Questions(unittest.TestCase):
    def test_same_for_the_same_seed(self):
        self.assertEqual(questions.questions(3), questions.questions(3))
        self.assertNotEqual(questions.questions(3), questions.questions(4))

    def test_held_out_is_held_out(self):
        for seed in range(20):
            made = questions.questions(seed)
            for split, count in questions.COUNTS.items():
                self.assertEqual(sorted(q[0] for q in made[split]), sorted([*questions.FAMILIES] * count), f"seed {seed}, {split}")
            items = {split: {item for _, item, _, _ in of} for split, of in made.items()}
            for a, b in itertools.combinations(items, 2):
                self.assertFalse(items[a] & items[b], f"seed {seed}: {a} and {b} share an item")

    def test_a_question_has_its_familys_code(self):
        for seed in range(20):
            made = questions.questions(seed)
            codes = {}
            for family, item, question, answer in itertools.chain(*made.values()):
                said = [w for w in re.findall("[a-z]+", question) if w in questions.CODES]
                self.assertEqual(len(said), 1, question)
                self.assertEqual(codes.setdefault(family, said[0]), said[0], question)
                self.assertIn(item, question)
                self.assertTrue(answer and ", " not in answer, answer)  # task=infer cuts an answer there
            self.assertEqual(len(set(codes.values())), len(questions.FAMILIES))

    def test_records(self):
        made = questions.questions(1)
        records = questions.records(made["train"], made["val"])
        self.assertEqual([r["id"] for r in records], [*range(len(records))])
        self.assertEqual([r["split"] for r in records], ["train"] * len(made["train"]) + ["val"] * len(made["val"]))
        self.assertTrue(all(len(r["answers"]) == 10 and len({*r["answers"]}) == 1 for r in records))


if __name__ == "__main__":
    unittest.main()
