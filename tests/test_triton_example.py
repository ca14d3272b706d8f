"""The model of examples/triton, with a stand-in for the module that Triton brings."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from test_pickles import sample_model

import rlx

FOLDER = Path(__file__).parent.parent / "examples/triton/rlx_model"


class TritonTensor:
    """A named array, as ``pb_utils.Tensor``."""

    def __init__(self, name, array):
        assert isinstance(array, np.ndarray)
        self._name, self._array = name, array

    def name(self):
        return self._name

    def as_numpy(self):
        return self._array


class TritonError:
    """An error of one request."""

    def __init__(self, message):
        self._message = message

    def message(self):
        return self._message


class Response:
    """The answer to a request."""

    def __init__(self, output_tensors, error=None):
        self._tensors, self._error = output_tensors, error

    def output_tensors(self):
        return self._tensors

    def error(self):
        return self._error

    def has_error(self):
        return self._error is not None


class Config:
    """The argument of ``auto_complete_config``."""

    def __init__(self, **fields):
        self.fields = fields

    def as_dict(self):
        return self.fields

    def add_input(self, item):
        self.fields.setdefault("input", []).append(item)

    def set_max_batch_size(self, size):
        self.fields["max_batch_size"] = size

    def set_dynamic_batching(self):
        self.fields["dynamic_batching"] = {}


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """The model's module, in a repository of its own, and the arguments of ``initialize``."""
    stand_in = ModuleType("triton_python_backend_utils")
    stand_in.Tensor, stand_in.TritonError, stand_in.InferenceResponse = (
        TritonTensor,
        TritonError,
        Response,
    )
    stand_in.get_input_tensor_by_name = lambda request, name: request.get(name)
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    repository = tmp_path / "rlx_model"
    shutil.copytree(FOLDER, repository)
    (repository / "1/model.onnx").write_bytes(sample_model())
    spec = importlib.util.spec_from_file_location("triton_model", repository / "1/model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = {"max_batch_size": 64, "parameters": {"device": {"string_value": "cpu"}}}
    return module, {
        "model_config": json.dumps(config),
        "model_repository": str(repository),
        "model_version": "1",
        "model_instance_kind": "CPU",
    }


def _request(x):
    return {"x": TritonTensor("x", x)}


def test_requests_are_joined_and_answered_one_by_one(loaded, rng, monkeypatch):
    module, args = loaded
    model = module.TritonPythonModel()
    model.initialize(args)
    runs = []
    run = model._model.run
    monkeypatch.setattr(model._model, "run", lambda value: runs.append(value) or run(value))
    xs = [rng.standard_normal((rows, 3)).astype(np.float32) for rows in (1, 4, 2)]
    wrong = np.zeros((2, 7), np.float32)
    requests = [_request(xs[0]), _request(wrong), _request(xs[1]), {}, _request(xs[2])]
    result = model.execute(requests)
    assert [item.has_error() for item in result] == [False, True, False, True, False]
    assert "inputs are missing: x" in result[3].error().message()
    assert len(runs) == 2  # the three that fit together, and the one that does not
    expected = rlx.onnx.Model(sample_model(), "cpu")
    for x, value in zip(xs, (0, 2, 4), strict=True):
        (tensor,) = result[value].output_tensors()
        assert tensor.name() == "y"
        np.testing.assert_allclose(tensor.as_numpy(), expected.run(x)[0], rtol=1e-6)
    model.finalize()
    assert model._model.closed


def test_the_configuration_comes_from_the_file(loaded):
    module, _ = loaded
    config = module.TritonPythonModel.auto_complete_config(Config())
    assert config.as_dict() == {
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [3]}],
        "max_batch_size": 64,
        "dynamic_batching": {},
    }


def test_instances_on_a_gpu_take_the_adapter_of_their_number(loaded, monkeypatch):
    module, args = loaded
    asked = []
    monkeypatch.setattr(
        module.rlx.onnx, "Model", lambda path, device: asked.append(device) or _Nothing()
    )
    config = json.dumps({"max_batch_size": 8})
    more = {"model_config": config, "model_instance_kind": "GPU", "model_instance_device_id": "1"}
    module.TritonPythonModel().initialize({**args, **more})
    assert asked == ["webgpu:1"]


class _Nothing:
    inputs = ()
