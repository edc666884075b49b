# Wrote the fixtures of this folder (PyTorch 1.13.1, NumPy 1.24): /usr/bin/python3 make.py
import collections, pickle, numpy as np, torch
torch.manual_seed(0)
base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
value = {
    "epoch": 3, "big": 2**40, "lr": 1e-4, "phase": "rce", "flag": True, "none": None,
    "list": [1, 2.5, "x"], "tuple": (1, (2, 3)), "size": torch.Size([2, 3]),
    "state": collections.OrderedDict(transposed=base.t(), view=base[1:3, 2:5], strided=base[:, ::2], whole=base),
    "expanded": torch.tensor([7.0]).expand(3, 2), "scalar": torch.tensor(5), "empty": torch.zeros(0, 4),
    "half": torch.tensor([1.5, -2.0, 65504.0, 6e-8], dtype=torch.float16), "bf16": torch.tensor([1.0, -3.0], dtype=torch.bfloat16),
    "double": torch.tensor([0.1], dtype=torch.float64), "bool": torch.tensor([True, False]), "bytes": torch.tensor([1, 255], dtype=torch.uint8),
    "param": torch.nn.Parameter(torch.tensor([1.0, 2.0])), "int32": torch.tensor([-1, 2], dtype=torch.int32),
    "numpy": np.arange(6, dtype=np.float64).reshape(2, 3), "fortran": np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
    "npscalar": np.float64(0.25),
}
torch.save(value, "nested.pt")
torch.save(value, "nested_legacy.pt", _use_new_zipfile_serialization=False)
torch.save(value, "nested_proto4.pt", pickle_protocol=4)
pickle.dump(np.arange(4, dtype=np.float32), open("plain.pkl", "wb"), protocol=2)
pickle.dump(np.arange(4, dtype=np.float32), open("plain5.pkl", "wb"), protocol=5)
class Evil:
    def __reduce__(self): import os; return (os.system, ("touch /tmp/owned",))
torch.save({"a": Evil()}, "evil.pt")
torch.save({"a": Evil()}, "evil_legacy.pt", _use_new_zipfile_serialization=False)
for name, a in dict(f2=np.array([1.5, -2], "f2"), f4=np.arange(6, dtype="<f4").reshape(2, 3), f8=np.array([[0.1, 0.2]]), big=np.array([1, 2], ">f4"),
                    fortran=np.asfortranarray(np.arange(6, dtype="f4").reshape(2, 3)), i4=np.array([-1, 2], "i4"), i8=np.array([2**40]), u1=np.array([255], "u1"),
                    b1=np.array([True, False]), text=np.array(["ab", "é", ""]), empty=np.zeros((0, 3), "f4"), scalar=np.float32(3)).items(): np.save("npy_%s.npy" % name, a)
np.save("npy_object.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
np.savez_compressed("arrays.npz", x=np.arange(3, dtype="i2"), names=np.array(["a", "bc"]))
# A Lightning checkpoint as it comes out of a training: hyper-parameters, callbacks and optimizer states beside the weights.
import argparse, pathlib, sys, types
for module in ["pytorch_lightning", "pytorch_lightning.utilities", "pytorch_lightning.utilities.parsing"]: sys.modules[module] = types.ModuleType(module)
class AttributeDict(dict): pass
AttributeDict.__module__ = "pytorch_lightning.utilities.parsing"; sys.modules[AttributeDict.__module__].AttributeDict = AttributeDict
torch.save({"epoch": 7, "global_step": 80, "state_dict": collections.OrderedDict({"lever_lm.pointer_selector.query_proj.weight": torch.eye(2)}),
    "hyper_parameters": AttributeDict(lr=1e-4, args=argparse.Namespace(x=1)), "callbacks": {"ModelCheckpoint": {"best": torch.tensor(0.5), "dirpath": pathlib.PosixPath("/a/b")}},
    "optimizer_states": [{"state": collections.defaultdict(dict, {0: {"step": torch.tensor(3.0), "exp_avg": torch.zeros(2, 2)}}), "param_groups": [{"lr": 1e-4, "betas": (0.9, 0.999), "params": [0]}]}],
    "loops": None}, "lightning.ckpt")
# Tensors whose sign is in their metadata alone (PyTorch 2.14; the second is of _rebuild_tensor_v3).
torch.save({"w": torch.tensor([1 + 2j]).conj().imag}, "neg.pt"); torch.save({"w": torch._neg_view(torch.tensor([1], dtype=torch.uint16))}, "neg_v3.pt")
torch.save({"w": torch.tensor([1 + 2j]).conj()}, "conj.pt")
