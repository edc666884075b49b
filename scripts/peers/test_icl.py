"""Likelihoods, InfoScores and greedy answers of prompts with demonstrations beside a plain program on transformers."""

import pytest

import icl
import peers


@pytest.mark.parametrize("tied", [True, False])
def test_infoscores(probe, tmp_path, tied):
    icl.folder_of(peers.qwen2_5_vl(tied), tmp_path)
    asked = icl.prompts(200, 1 + tied)
    pairs = [(p, icl.without_last(p)) for p in asked if p["Shots"]]
    assert len(asked) == 200 and len(pairs) >= 140
    every = asked + [w for _, w in pairs]
    found = probe("likelihood", Options={"Path": str(tmp_path), "DType": "float32"}, Asked=every)["logp"]
    ours = {id(p): f[0] for p, f in zip(every, found)}
    plain = icl.Plain(tmp_path)
    theirs = {id(p): plain.score([p])[0] for p in every}
    for p in every:
        peers.close("log-probabilities", ours[id(p)], theirs[id(p)], 1e-4)
    scores = [icl.infoscore(theirs[id(p)], theirs[id(w)]) for p, w in pairs]
    assert max(map(abs, scores)) > 1e-3, "the scores are all alike: nothing is compared"
    for (p, w), want in zip(pairs, scores):
        assert abs(icl.infoscore(ours[id(p)], ours[id(w)]) - want) < 1e-4


def test_answers(probe, tmp_path):
    icl.folder_of(peers.qwen2_5_vl(), tmp_path)
    asked = icl.prompts(24, 9)
    ours = probe("answer", Options={"Path": str(tmp_path), "DType": "float32"}, Asked=asked, Tokens=6)["texts"]
    plain = icl.Plain(tmp_path)
    assert ours == [plain.answer(p, 6) for p in asked]
