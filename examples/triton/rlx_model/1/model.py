"""An rlx model for the Python backend of NVIDIA Triton Inference Server.

The file beside this one, ``model.onnx``, is run by ``rlx.onnx.Model`` on the device that the parameter ``device`` of
config.pbtxt names ("auto" without it). Requests that Triton hands over together are joined along their first axis, run once,
and taken apart again; sizes share executables by buckets. Nothing here needs the server but the module that it brings.
"""

import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils

import rlx

# Element types of ONNX, by the name that Triton has for them.
_TYPES = {
    "float": "TYPE_FP32",
    "double": "TYPE_FP64",
    "float16": "TYPE_FP16",
    "int64": "TYPE_INT64",
    "int32": "TYPE_INT32",
    "int8": "TYPE_INT8",
    "uint8": "TYPE_UINT8",
    "bool": "TYPE_BOOL",
}
MODEL = "model.onnx"


class TritonPythonModel:
    """The model class that the backend instantiates for each instance of the model."""

    @staticmethod
    def auto_complete_config(config):
        """Fills in what config.pbtxt leaves out: inputs and the batch, from the model's file."""
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), MODEL)
        with rlx.onnx.Model(path, device="cpu") as model:
            batched = all(isinstance(port.dims[0], str) for port in model.inputs if port.dims)
            for port in model.inputs:
                if port.dims is None:
                    raise rlx.InputError(f"the file does not say how many dimensions {port} has")
                dims = [-1 if isinstance(size, str) else size for size in port.dims]
                kind = _TYPES.get(port.element.name)
                if kind is None:
                    raise rlx.InputError(f"Triton has no type for {port}")
                config.add_input(
                    {"name": port.name, "data_type": kind, "dims": dims[1:] if batched else dims}
                )
        if batched and not config.as_dict().get("max_batch_size"):
            config.set_max_batch_size(64)
            config.set_dynamic_batching()
        return config

    def initialize(self, args):
        """Reads the model; the first requests compile it for their sizes."""
        config = json.loads(args["model_config"])
        inputs = {
            name: value["string_value"] for name, value in config.get("parameters", {}).items()
        }
        device = inputs.get("device", "auto")
        if args.get("model_instance_kind") == "GPU" and device == "auto":
            device = f"webgpu:{args.get('model_instance_device_id', '0')}"
        path = os.path.join(args["model_repository"], args["model_version"], MODEL)
        self._model = rlx.onnx.Model(path, device=device)
        self._batches = config.get("max_batch_size", 0) > 0
        self._names = [port.name for port in self._model.inputs]

    def execute(self, requests):
        """Answers requests, each with outputs or an error of its own."""
        responses = [None] * len(requests)
        for places in self._alike(requests, responses):
            arguments = [_arrays(requests[place], self._names) for place in places]
            counts = [len(next(iter(item.values()))) for item in arguments]
            try:
                joined = {
                    name: np.concatenate([item[name] for item in arguments]) for name in self._names
                }
                outputs = self._model.run(joined if len(places) > 1 else arguments[0])
            except rlx.RlxError as error:
                for place in places:
                    responses[place] = _failed(error)
                continue
            ends = np.cumsum(counts)
            for place, end, count in zip(places, ends, counts, strict=True):
                mine = [
                    output[end - count : end] if len(places) > 1 else output for output in outputs
                ]
                tensors = [
                    pb_utils.Tensor(name, np.ascontiguousarray(item))
                    for name, item in zip(self._model.output_names, mine, strict=True)
                ]
                responses[place] = pb_utils.InferenceResponse(output_tensors=tensors)
        return responses

    def finalize(self):
        """Frees the device."""
        self._model.close()

    def _alike(self, requests, responses):
        """Places of requests that can be joined; those that lack an input are answered with the error."""
        groups: dict[object, list[int]] = {}
        for index, request in enumerate(requests):
            try:
                arrays = _arrays(request, self._names)
            except rlx.InputError as error:
                responses[index] = _failed(error)
                continue
            shapes = tuple((array.dtype, array.shape[1:]) for array in arrays.values())
            lengths = {array.shape[:1] for array in arrays.values()}
            joins = self._batches and len(lengths) == 1 and lengths != {()}
            groups.setdefault(shapes if joins else index, []).append(index)
        return groups.values()


def _arrays(request, names):
    results = {name: pb_utils.get_input_tensor_by_name(request, name) for name in names}
    missing = [name for name, tensor in results.items() if tensor is None]
    if missing:
        raise rlx.InputError(f"inputs are missing: {', '.join(missing)}")
    return {name: tensor.as_numpy() for name, tensor in results.items()}


def _failed(error):
    return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(str(error)))
