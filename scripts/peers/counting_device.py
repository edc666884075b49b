"""Steps and generations on CUDA without a GPU: counting_device.cc counts what the program launches, copies, waits for and allocates.

Two runs of which one has more queries differ by some steps; the difference of their counts, divided by that number, is a step's. What is made
once for several steps, such as the frozen policies' numbers for the epoch, makes it a fraction; a cost for each token, query or parameter would
be 7 or more, since that is how many more of them the large steps have.
"""

import collections
import json
import os
import pathlib
import re
import struct
import subprocess

import pytest
import torch

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = pathlib.Path(os.environ["DEVICE_PROGRAM"]).resolve()
COUNTS = ["launches", "recorded", "uploads", "pageable", "readbacks", "waits", "allocations", "pinned", "graphs", "refused"]

COMMON = "device=cuda seed=3 report.plots=false checks.off=[preflight,doctor]"
POINTER = "exp=beams_v3 selector.hidden_dim=32 data.shapes.reader_questions=30 data.shapes.val_queries=16 data.shapes.dev_queries=16"
VL = (
    "exp=shapes_vl data.conversations.demos=24 data.shapes.val_queries=16 data.shapes.dev_queries=16 vl.scratch.hidden_size=64 vl.scratch.intermediate_size=96"
    " vl.scratch.image_pixels=3136 grpo.group_size=4"
)
SEQ2SEQ = (
    "exp=summaries_tiny data.summaries.val=8 data.summaries.test=8 seq2seq.scratch.d_model=32 seq2seq.scratch.d_ff=48"
    " seq2seq.scratch.num_heads=2 grpo.group_size=3"
)
# Of each policy: its settings, which key says how many queries there are, and small and large steps: more layers, queries and tokens.
POLICIES = {
    "pointer": (POINTER, "data.shapes.train_queries", ["data.batch_size=8"], ["data.batch_size=16", "selector.hidden_dim=64"]),
    "vl": (
        VL, "data.shapes.train_queries", ["data.batch_size=8", "vl.scratch.num_hidden_layers=2"],
        ["data.batch_size=16", "vl.scratch.num_hidden_layers=4", "vl.generation.max_new_tokens=9"],
    ),
    "vl-bfloat16": (
        VL + " vl.dtype=bfloat16 vl.lora.enabled=true", "data.shapes.train_queries", ["data.batch_size=8", "vl.scratch.num_hidden_layers=2"],
        ["data.batch_size=16", "vl.scratch.num_hidden_layers=4", "vl.generation.max_new_tokens=9"],
    ),
    **{
        model: (
            SEQ2SEQ + f" seq2seq.scratch.model={model}", "data.summaries.train",
            ["data.batch_size=8", "seq2seq.scratch.num_layers=1", "seq2seq.generation.max_new_tokens=8"],
            ["data.batch_size=16", "seq2seq.scratch.num_layers=3", "seq2seq.generation.max_new_tokens=20"],
        )
        for model in ("t5", "bart")
    },
}  # fmt: skip
POLICIES["t5-passes"] = (POLICIES["t5"][0] + " grpo.num_iterations=2 grpo.kl.controller=proportional grpo.kl.update=step", *POLICIES["t5"][1:])
CASES = [("pointer", "rce"), ("pointer", "grpo"), ("pointer", "grpo_online"), ("vl", "sft"), ("vl", "rce"), ("vl", "grpo"),
         ("vl-bfloat16", "grpo"), ("t5", "sft"), ("t5", "rce"), ("t5", "grpo"), ("t5-passes", "grpo"), ("bart", "grpo")]  # fmt: skip


class Device:
    def __init__(self, folder):
        self.folder, self.kernels = folder, collections.Counter()
        settings = subprocess.run([HERE.parent / "libtorch.sh"], env={**os.environ, "LIBTORCH": "python"}, capture_output=True, text=True, check=True)
        includes = re.findall(r"-isystem \S+", settings.stdout)
        # Named as CUDA's driver is, so that whoever asks for that finds it loaded.
        subprocess.run(["g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror", *" ".join(includes).split(),
                        "-Wl,-soname,libcuda.so.1", "-o", folder / "libcuda.so.1", HERE / "counting_device.cc"], check=True)  # fmt: skip

    def run(self, *words, program=PROGRAM, preload=()):
        """Runs the program and returns its counts and how often it launched each kernel."""
        for file in self.folder.glob("counts.*"):
            file.unlink()
        env = {**os.environ, "LD_PRELOAD": " ".join(map(str, [self.folder / "libcuda.so.1", *preload])), "LD_LIBRARY_PATH": self.folder, "COUNTS": self.folder / "counts",
               "XDG_CACHE_HOME": self.folder / "cache", "OMP_NUM_THREADS": "1"}  # fmt: skip
        done = subprocess.run([program, *words], env=env, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        counts, kernels = collections.Counter(), collections.Counter()
        for file in self.folder.glob("counts.*"):  # one a process
            data = file.read_bytes()
            counts.update(dict(zip(COUNTS, struct.unpack_from("16Q", data))))
            for at in range(128, len(data), 256):
                if n := struct.unpack_from("Q", data, at + 248)[0]:
                    kernels[data[at : at + 248].split(b"\0")[0].decode()] += n
        self.kernels.update(kernels)
        return counts, kernels

    def step(self, name, settings, phase, queries, batch):
        """What a step costs: the difference of two runs."""
        found = []
        for n in (6, 9):
            folder = self.folder / f"{name}-{n}"
            counts, _ = self.run(*COMMON.split(), *settings, f"schedule=[{phase}]", f"{phase}.epochs=1", f"{queries}={n * batch}",
                                 f"hydra.run.dir={folder}")
            rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            found.append((sum(row["kind"] == "step" for row in rows), counts))
        steps = found[1][0] - found[0][0]
        assert steps > 0
        return {k: (found[1][1][k] - found[0][1][k]) / steps for k in COUNTS}


@pytest.fixture(scope="session")
def device(tmp_path_factory):
    return Device(tmp_path_factory.mktemp("device"))


@pytest.mark.parametrize("policy,phase", CASES)
def test_a_step_has_no_copy_wait_or_allocation_for_a_token_or_a_parameter(device, policy, phase):
    settings, queries, small, large = POLICIES[policy]
    per = []
    for size, change in (("small", small), ("large", large)):
        batch = int(change[0].split("=")[1])
        acting = [word for word in settings.split() if not word.startswith("grpo.") or phase.startswith("grpo")]
        per.append(device.step(f"{policy}-{phase}-{size}", [*acting, *change], phase, queries, batch))
    a, b = per
    print(policy, phase, "small", a, "large", b)
    for k in ("uploads", "readbacks", "waits"):
        assert abs(b[k] - a[k]) < 1.5, (k, a, b)
    assert a["pageable"] == b["pageable"] == a["refused"] == 0
    assert max(a["allocations"], b["allocations"]) < 1.5  # a recorded generation's memory
    # A step that samples waits for its completions: the numbers of the one before have come with them. After 16 of 20 tokens the host looks at
    # which have ended. What the pointer's GRPO keeps of the reference is read once for many steps.
    looks = {"t5": 1, "bart": 1, "t5-passes": 0.5}.get(policy, 0) if phase == "grpo" else 0
    assert a["waits"] == 1 and b["waits"] == 1 + looks or (policy, phase) == ("pointer", "grpo") and max(a["waits"], b["waits"]) < 2, (a, b)
    if policy == "pointer" and phase != "grpo_online":  # its steps are graphs, whose numbers are read one step late
        assert a["graphs"] == b["graphs"] == 1
    if (policy, phase) == ("pointer", "rce"):  # GRPO also computes the reference's numbers, once for many steps
        assert (b["uploads"], b["readbacks"], b["launches"], b["waits"]) == (1, 1, 0, 1), b


# Published shapes, cut down: words that only a language model reads, in bfloat16 with adapters, and pictures.
@pytest.mark.parametrize("shape", ["qwen2_5_1_5b", "qwen2_5_vl_3b"])
@pytest.mark.parametrize("case", ["shape-decode", "shape-update", "shape-step"])
def test_published_shapes(device, shape, case):
    sizes = "hidden=64,heads=2,kv_heads=1,mlp=96,vocab=640,prompt=16,prompts=2,group=2,micro=1,sequences=4"
    if "vl" in shape:
        sizes += ",vision_depth=2,vision_hidden=32,vision_heads=2,vision_mlp=48,image=56"
    found = []
    for more in ("layers=2,new=8", "layers=4,new=15"):
        words = ["workloads", "--device", "cuda", shape, "--phases", case, "--threads", "1", "--repeats", "1", "--format", "json", "--sizes"]
        found.append(device.run(*words, sizes + "," + more, program=PROGRAM.with_name("bench"))[0])
    a, b = found
    print(shape, case, "small", dict(a), "large", dict(b))
    # Pageable memory holds the adapters that a process begins with: a copy and a wait for each parameter, once.
    for k in ("uploads", "waits"):
        assert a[k] - a["pageable"] == b[k] - b["pageable"], (k, a, b)
    assert a["readbacks"] == b["readbacks"] and b["refused"] == 0
    assert (b["graphs"] > 0) == (case != "shape-update")


@pytest.mark.parametrize("kernel", ["exact", "fast"])
def test_slots_are_recorded(device, kernel):
    """Decoding in slots: what more tokens cost is graphs that are launched, and looks at what has ended; the fast kernel is chosen."""
    words = [*COMMON.split(), *VL.split(), "vl.scratch.hidden_size=256", "vl.dtype=bfloat16", "data.batch_size=16", "data.shapes.train_queries=48",
             "schedule=[grpo]", "grpo.epochs=1", "vl.generation.slots=8", f"vl.generation.kernel={kernel}"]  # fmt: skip
    found = [device.run(*words, f"vl.generation.max_new_tokens={n}", f"hydra.run.dir=slots-{kernel}-{n}") for n in (20, 36)]
    a, b = (counts for counts, _ in found)
    print(kernel, "20 tokens", dict(a), "36 tokens", dict(b))
    assert b["graphs"] >= a["graphs"] + 16 and b["launches"] < a["launches"] + 16 * 8, (a, b)
    assert any("decode_64" in name for name in found[0][1]) == (kernel == "fast")


def test_every_kernel_of_ours_is_chosen(device):
    """After the runs above: dispatch has taken every kernel of our own, and libtorch's fused attention both ways."""
    source = (HERE.parent.parent / "internal/torchx/csrc/cuda_kernels.cc").read_text()
    lists = re.findall(r"std::vector<std::string> k\w+Names = \{([^}]*)\}", source)
    ours = {name for text in lists for name in re.findall(r'"(\w+)"', text)} | {"draw", "decode_64"}
    assert len(ours) > 25
    seen = {re.sub(r"^_Z\d+", "", name.removeprefix("ours: ")).split("IL")[0] for name in device.kernels if name.startswith("ours: ")}
    assert ours - seen == {"token_back_f16"}  # nothing is trained in float16
    for fused in ("fmha_cutlassF_f32", "fmha_cutlassB_f32", "flash_fwd", "flash_bwd"):
        assert any(fused in name for name in device.kernels), fused


def test_processes_exchange_from_device_to_device(device, monkeypatch):
    """With NCCL (a stand-in) gradients and weights do not pass through the host."""
    nccl, stand_in = device.folder / "libnccl.so.2", HERE.parent.parent / "experiments/testdata/nccl_stand_in.c"
    wanted = subprocess.run(["nm", "-D", "--undefined-only", *pathlib.Path(torch.__file__).parent.glob("lib/libtorch_*.so")],
                            capture_output=True, text=True, check=True).stdout  # fmt: skip
    rest = set(re.findall(r"U (nccl\w+)", wanted)) - set(re.findall(r"(nccl\w+)\(", stand_in.read_text()))
    (device.folder / "rest.c").write_text("".join(f"int {name}(void) {{ return 1; }}\n" for name in sorted(rest)))
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o", nccl, stand_in, device.folder / "rest.c"], check=True)
    monkeypatch.setenv("NCCL_STAND_IN", str(device.folder))
    words = [*COMMON.split(), *POLICIES["pointer"][0].split(), "data.batch_size=8", "data.shapes.train_queries=16", "schedule=[rce]", "rce.epochs=1",
             "parallel.shards=2", "parallel.processes=2"]  # fmt: skip
    gloo, _ = device.run(*words, "parallel.backend=gloo", "hydra.run.dir=gloo")
    there, _ = device.run(*words, "parallel.backend=nccl", "hydra.run.dir=nccl", preload=[nccl])
    asked = (device.folder / "asked").read_text()
    print(gloo, there)
    assert asked.count("send") >= 4
    assert all(there[k] < gloo[k] for k in ("uploads", "readbacks", "waits")), (gloo, there)


def test_compiled_kernels_are_kept(device):
    """A second process takes the code of the first, and a file that was cut is none."""
    words = [*COMMON.split(), *POLICIES["pointer"][0].split(), "data.batch_size=8", "data.shapes.train_queries=8", "schedule=[rce]", "rce.epochs=1"]
    files = lambda: {p: p.read_bytes() for p in sorted((device.folder / "cache/fulcrum/kernels").iterdir())}
    device.run(*words, "hydra.run.dir=kept-1")
    first = files()
    assert first and all(p.name.isdigit() for p in first)
    changed = {}
    for path, text in first.items():  # a name that only the file has shows that it was read
        changed[path] = text.replace(b"\0_Z11add_columns", b"\0_Z11ADD_COLUMNS")
        path.write_bytes(changed[path])
    assert changed != first
    _, kernels = device.run(*words, "hydra.run.dir=kept-2")
    assert any("ADD_COLUMNS" in name for name in kernels) and files() == changed
    for path, text in first.items():
        path.write_bytes(text[: len(text) - 1])
    _, kernels = device.run(*words, "hydra.run.dir=kept-3")
    again = {p: t for p, t in files().items() if len(t) == len(first[p])}
    assert again and all(first[p] == t for p, t in again.items()) and not any("ADD_COLUMNS" in name for name in kernels)
