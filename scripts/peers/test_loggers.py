"""A run's logs in their real readers: MLflow's server, and TensorBoard's reader of event files."""

import json
import math
import os
import pathlib
import socket
import subprocess
import sys
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
    """A short run that logs to the server, interrupted once by its own resume."""
    folder = tmp_path_factory.mktemp("run") / "run"
    os.environ["MLFLOW_TRACKING_URI"], os.environ["MLFLOW_EXPERIMENT_NAME"] = server, "peers"
    peers.run("exp=okvqa_v3", "data.shapes.train_queries=64", "data.shapes.val_queries=20", "data.shapes.dev_queries=20", "rce.epochs=1",
              "grpo.epochs=2", "report.plots=false", f"hydra.run.dir={folder}")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) > 10
    return folder, rows


def finite(rows):
    """(name, step) → value of every plain number of step and epoch rows."""
    out = {}
    for row in rows:
        if row["kind"] not in ("step", "epoch"):
            continue
        for name, value in row.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
                out.setdefault(name, []).append(value)
    return out


def test_mlflow(server, finished):
    import mlflow

    folder, rows = finished
    mlflow.set_tracking_uri(server)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("peers")
    found = client.search_runs([experiment.experiment_id])
    assert len(found) == 1 and found[0].info.status == "FINISHED"
    run = found[0]
    assert run.data.params["grpo.epochs"] == "2" and run.data.params["policy"]
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
