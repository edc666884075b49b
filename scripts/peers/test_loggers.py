"""A run's logs in their real readers: MLflow's server, TensorBoard's reader of event files, and W&B's client, which uploads them."""

import gzip
import http.server
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

import peers


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination",
               str(folder / "artifacts"), "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(address + "/health").read()
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(1)
        yield address
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def finished(server, tmp_path_factory):
    """A short run that logs to the server and for W&B, interrupted in its second phase and resumed."""
    folder = tmp_path_factory.mktemp("run") / "run"
    os.environ["MLFLOW_TRACKING_URI"], os.environ["MLFLOW_EXPERIMENT_NAME"] = server, "peers"
    process = subprocess.Popen([peers.RUN, "exp=okvqa_v3", "data.shapes.train_queries=64", "data.shapes.val_queries=20",
                                "data.shapes.dev_queries=20", "rce.epochs=1", "grpo.epochs=20", "report.plots=false", "logging.wandb=true",
                                f"hydra.run.dir={folder}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while '"phase":"grpo"' not in (folder / "metrics.jsonl").read_text() if (folder / "metrics.jsonl").exists() else process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait() != 0, "the run ended before it was interrupted"
    peers.run("resume", folder)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) > 10
    return folder, rows


def test_mlflow(server, finished):
    import mlflow

    folder, rows = finished
    mlflow.set_tracking_uri(server)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("peers")
    found = client.search_runs([experiment.experiment_id])
    assert len(found) == 1 and found[0].info.status == "FINISHED"
    run = found[0]
    assert run.data.params["grpo.epochs"] == "20" and run.data.params["policy"]
    seen = 0
    for key in run.data.metrics:
        history = client.get_metric_history(run.info.run_id, key)
        name = key.split("/")[-1]
        values = sorted(v for r in rows for n, v in r.items() if n == name and isinstance(v, (int, float)) and not isinstance(v, bool))
        for point in history:
            assert any(abs(point.value - v) <= 1e-9 * max(1, abs(v)) for v in values), f"{key} at step {point.step}: {point.value}"
            seen += 1
    losses = [p.value for p in client.get_metric_history(run.info.run_id, next(k for k in run.data.metrics if k.endswith("loss")))]
    assert seen > 100 and losses


def test_tensorboard(finished):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, rows = finished
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0})
    reader.Reload()
    tags = reader.Tags()
    steps = [r for r in rows if r["kind"] == "step"]
    assert len(tags["scalars"]) > 20, tags
    seen = 0
    for tag in tags["scalars"]:
        parts = tag.split("/")
        values = [v for r in rows for n, v in r.items() if n == parts[-1] and isinstance(v, (int, float)) and not isinstance(v, bool)]
        for event in reader.Scalars(tag):
            assert any(abs(event.value - v) <= 1e-6 * max(1e-3, abs(v)) for v in values), f"{tag} at {event.step}: {event.value}"
            seen += 1
    assert seen >= 10 * len(steps)
    losses = [r["loss"] for r in steps if r["phase"] == "grpo"]
    tag = next(t for t in tags["scalars"] if "grpo" in t and t.endswith("/loss") and len(reader.Scalars(t)) == len(losses))
    assert [e.value for e in reader.Scalars(tag)] == pytest.approx(losses, rel=1e-6)


class StandIn(http.server.BaseHTTPRequestHandler):
    """As much of W&B's server as its client asks for: it keeps what is uploaded."""

    def do_GET(self):
        self.answer({})

    def do_PUT(self):
        self.body()
        self.answer({})

    def do_POST(self):
        asked = json.loads(self.body() or b"{}")
        seen = self.server.seen
        if self.path.endswith("/file_stream"):
            seen["streamed"].append(asked)
            return self.answer({})
        query, given = asked.get("query", ""), asked.get("variables", {})
        answers = {"serverInfo": {"features": [], "cliVersionInfo": {}, "latestLocalVersionInfo": None},
                   "viewer": {"id": "1", "entity": "someone", "username": "someone", "flags": "{}", "teams": {"edges": []}}}
        if "upsertBucket" in query:
            seen["runs"].append(given)
            project = {"id": "1", "name": given["project"], "entity": {"id": "1", "name": given.get("entity") or "someone"}}
            answers = {"upsertBucket": {"inserted": True, "bucket": {"id": "1", "name": given.get("name"), "displayName": given.get("displayName"),
                                                                     "description": None, "config": None, "sweepName": None, "historyLineCount": 0,
                                                                     "project": project}}}
        elif "createRunFiles" in query:
            address = f"http://127.0.0.1:{self.server.server_port}/upload/"
            answers = {"createRunFiles": {"runID": "1", "uploadHeaders": [],
                                          "files": [{"name": f, "uploadUrl": address + f} for f in given["files"]]}}
        self.answer({"data": answers})

    def body(self):
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def answer(self, what):
        text = json.dumps(what).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def test_wandb(finished, tmp_path):
    """wandb sync uploads every row once, the configuration and how the run ended."""
    folder, rows = finished
    [path] = (folder / "wandb").glob("offline-run-*/run-*.wandb")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    server.seen = {"runs": [], "streamed": []}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {**os.environ, "WANDB_BASE_URL": f"http://127.0.0.1:{server.server_port}", "WANDB_API_KEY": "0" * 40, "HOME": str(tmp_path),
                   "WANDB_DIR": str(tmp_path), "WANDB_ERROR_REPORTING": "false"}
    done = subprocess.run([sys.executable, "-m", "wandb", "sync", str(path.parent)], env=environment, cwd=tmp_path, capture_output=True, text=True,
                          timeout=600)
    server.shutdown()
    assert done.returncode == 0 and path.with_name(path.name + ".synced").exists(), done.stdout + done.stderr
    run = server.seen["runs"][0]
    config = {k: v["value"] for k, v in json.loads(run["config"]).items()}
    assert run["project"] == "fulcrum" and path.name == f"run-{run['name']}.wandb"
    assert config["grpo"]["epochs"] == 20 and config["logging"]["wandb"] is True and config["policy"]
    lines, summary, ended = {}, {}, []
    for part in server.seen["streamed"]:
        for name, file in part.get("files", {}).items():
            if name == "wandb-history.jsonl":
                lines.update({file["offset"] + i: json.loads(line) for i, line in enumerate(file["content"])})
            elif name == "wandb-summary.json":
                summary = json.loads(file["content"][-1])
        ended += [part["exitcode"]] if part.get("complete") else []
    assert ended == [0]
    want = [r for r in rows if r["kind"] != "event"]
    assert sorted(lines) == list(range(len(want))), "rows are missing or doubled"
    for i, row in enumerate(want):
        line = lines[i]
        assert (line["_step"], line["global_step"], line["_timestamp"]) == (i, row["global_step"], row["time"])
        numbers = {k: v for k, v in row.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
        got = {k.split("/")[-1]: v for k, v in line.items() if "/" in k}
        assert got == {k: v for k, v in numbers.items() if k not in ("epoch", "step", "global_step", "time")}, (row, line)
    assert summary["grpo/train/loss"] == [r["loss"] for r in rows if r["kind"] == "step"][-1]
    drawn = [m for r in server.seen["runs"] if r.get("config") for m in json.loads(r["config"])["_wandb"]["value"].get("m", [])]
    assert {m.get("1") for m in drawn} >= {"grpo/train/loss", "rce/train/loss"}, drawn
