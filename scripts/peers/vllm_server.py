"""vLLM's CPU build behind lvlm.backend=vllm: a Qwen2.5-VL of random weights with pictures, its likelihoods and answers beside those of a
plain program on transformers. Run by test_vllm.sh."""

import os
import socket
import subprocess
import time
import urllib.request

import pytest

import bench_icl
import icl
import peers

# Heads of 32 numbers: vLLM's attention on a CPU has none smaller.
SIZE = dict(text=dict(hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2),
            vision=dict(depth=3, hidden_size=64, intermediate_size=128, num_heads=2), sections=[4, 6, 6])


class Server:
    def __init__(self, folder, log, *arguments):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [os.environ["VLLM_PYTHON"], "-m", "vllm.entrypoints.openai.api_server", "--model", folder, "--served-model-name", "tiny",
                   "--dtype", "float32", "--enforce-eager", "--max-model-len", "4096", "--max-num-batched-tokens", "4096", "--max-num-seqs", "8",
                   "--host", "127.0.0.1", "--port", str(port), "--limit-mm-per-prompt", '{"image": 8}', *arguments]
        quiet = dict(VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_NO_USAGE_STATS="1", VLLM_HOST_IP="127.0.0.1",
                     HF_HUB_OFFLINE="1")
        self.process = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log, env=os.environ | quiet)
        for _ in range(1200):
            try:
                urllib.request.urlopen(self.url + "/v1/models", timeout=1).close()
                return
            except OSError:
                assert self.process.poll() is None, "the server has ended"
                time.sleep(1)
        raise AssertionError("the server does not answer")

    def close(self):
        self.process.terminate()
        self.process.wait()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    at = tmp_path_factory.mktemp("model")
    icl.folder_of(bench_icl.model_of(SIZE), at)
    return at


@pytest.mark.parametrize("cache", ["--no-enable-prefix-caching", "--enable-prefix-caching"])
def test_vllm(probe, folder, tmp_path, cache):
    """Among the pictures is a transparent one, which vLLM would lay on white. Both ways the numbers are those of the prompts: vLLM does not
    take its prefix cache for requests with prompt_logprobs."""
    asked = icl.prompts(40, 3)
    with open(tmp_path / "log", "w") as log:
        server = Server(folder, log, cache)
        try:
            options = [dict(Backend="vllm", URL=server.url, ImageSize=0, Path=path, Concurrency=4) for path in (None, str(folder))]
            found = [probe("likelihood", Server=o, Asked=asked)["logp"] for o in options]
            texts = probe("answer", Server=options[0] | {"MaxNewTokens": 5}, Asked=asked[:8])["texts"]
        finally:
            server.close()
    plain = icl.Plain(folder)  # pictures resized by Pillow, as here; vLLM's by torchvision, which rounds otherwise: up to 1.5e-3 nats
    for i, p in enumerate(asked):
        want = plain.score([p])[0]
        for of in found:
            assert max(abs(a - b) for a, b in zip(of[i][0], want, strict=True)) < 5e-3, (p, of[i][0], want)
    bare = [t.replace("\ufffd", "") for t in texts]  # vLLM holds back bytes that spell no letter
    assert bare == [plain.answer(p, 5).replace("\ufffd", "") for p in asked[:8]]
