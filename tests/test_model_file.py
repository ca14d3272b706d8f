"""One file for a model: what is written comes back, compiled plans serve, smaller weights, damage."""

import json

import numpy as np
import pytest

import rlx
from rlx.compiler import compile_cache
from rlx.ir import container
from rlx.passes.quantize_weights import shrunk


def model(rows=4):
    rng, g = np.random.default_rng(0), rlx.Graph("model")
    x = g.input("x", (rows, 3, 8, 8))
    w, b = g.param("conv/w", (64, 3, 5, 5)), g.param("b", (64,))
    y = g.relu(g.conv2d(x, w, b, padding=2))
    y = g.mean(y, (2, 3)) @ g.param("dense", (64, 80))
    g.set_outputs([y + g.constant(np.arange(80, dtype="f4")), y])
    for name in g.param_names:
        value = rng.normal(size=g.named(name).shape).astype(np.float32)
        g.param_values[name] = value * (1 + np.arange(value.shape[0])).reshape(
            -1, *[1] * (value.ndim - 1)
        )
    return g


X = np.random.default_rng(1).normal(size=(4, 3, 8, 8)).astype(np.float32)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.rlx"


def test_round_trip(path, device):
    graph = model()
    assert rlx.save_model(graph, path) == []
    result = rlx.load_model(path, check=True)
    assert result.to_json() == graph.to_json()
    for name, value in graph.param_values.items():
        loaded = result.param_values[name]
        np.testing.assert_array_equal(loaded, value)
        assert not loaded.flags.writeable
    with rlx.compile(graph, device) as a, rlx.compile(result, device) as b:
        for first, other in zip(a.run({"x": X}), b.run({"x": X}), strict=True):
            np.testing.assert_array_equal(first, other)


def test_scalars_stay_scalars(path):
    g = rlx.Graph()
    g.set_outputs([g.constant(2.5), g.input("x", (3,)) * g.param("w", ())])
    g.param_values["w"] = np.array(3, np.float32)
    rlx.save_model(g, path)
    result = rlx.load_model(path)
    assert str(result) == str(g)
    assert result.param_values["w"].shape == ()


def test_plans_serve_what_they_were_made_for(path, target_device, monkeypatch, tmp_path):
    monkeypatch.setenv("RLX_CACHE", str(tmp_path / "cache"))
    rlx.save_model(model(), path, devices=[target_device])
    compile_cache._kept.clear()
    loaded = rlx.load_model(path)
    before = rlx.cache_stats()
    with rlx.compile(loaded, target_device) as compiled:
        result = compiled.run({"x": X})
        assert "conv" in compiled.as_text("schedule")
    after = rlx.cache_stats()
    assert (after.model_hits - before.model_hits, after.lowered - before.lowered) == (1, 0)
    with rlx.compile(model(), "reference") as exact:
        for first, other in zip(result, exact.run({"x": X}), strict=True):
            np.testing.assert_allclose(first, other, 1e-3, 1e-3)
    # Other options are another plan.
    after = rlx.cache_stats()
    with rlx.compile(loaded, target_device, options=rlx.CompileOptions(fuse=False)) as compiled:
        compiled.run({"x": X})
    assert rlx.cache_stats().lowered == after.lowered + 1


@pytest.mark.parametrize("build", ["missing", "other"])
def test_plans_of_another_version_are_refused(build, path):
    """Older versions did not say which build made the plans, and laid them out otherwise."""
    rlx.save_model(model(), path, devices=["cpu"])
    box = container.load(path.read_bytes())
    data = {key: value for key, value in box.data.items() if key != "build"}
    if build == "other":
        data["build"] = "0" * 64
    container.write(path, container.dump(box.kind, data, box.arrays))
    compile_cache._kept.clear()
    before = rlx.cache_stats()
    with pytest.warns(RuntimeWarning, match="built by another version of rlx"):
        loaded = rlx.load_model(path)
    with rlx.compile(loaded, "cpu") as compiled:
        result = compiled.run({"x": X})
    after = rlx.cache_stats()
    assert after.refused == before.refused + 1
    assert after.model_hits == before.model_hits
    with rlx.compile(model(), "reference") as exact:
        for first, other in zip(result, exact.run({"x": X}), strict=True):
            np.testing.assert_allclose(first, other, 1e-3, 1e-3)


@pytest.mark.parametrize(("weights", "error"), [("f16", 1e-3), ("int8", 1.5e-2)])
def test_smaller_weights(weights, error, path, tmp_path, device):
    whole, graph = tmp_path / "whole.rlx", model()
    rlx.save_model(graph, whole)
    notes = rlx.save_model(graph, path, weights)
    assert [note.split(":")[0] for note in notes] == ["conv/w", "dense"]
    assert path.stat().st_size < whole.stat().st_size * (0.6 if weights == "f16" else 0.4)
    with rlx.compile(graph, "reference") as exact:
        expected = exact.run({"x": X})
    with rlx.compile(rlx.load_model(path), device) as compiled:
        for first, other in zip(compiled.run({"x": X}), expected, strict=True):
            assert np.linalg.norm(first - other) < error * np.linalg.norm(other)
        if device != "reference":
            assert "cast" not in compiled.as_text("schedule"), "weights are widened in every run"


def test_weights_that_do_not_fit_are_left(path):
    graph = model()
    graph.param_values["dense"] = graph.param_values["dense"] * 1e6
    graph.param_values["conv/w"] = np.full((64, 3, 5, 5), np.nan, np.float32)
    for weights in ("f16", "int8"):
        result, notes = shrunk(graph, weights)
        assert "conv/w is left as it is" in notes[0]
        assert result.named("conv/w").dtype is rlx.DType.F32
        assert (result.named("dense").dtype is rlx.DType.F32) == (weights == "f16")
    with pytest.raises(rlx.InputError, match="int8"):
        rlx.save_model(graph, path, "int9")
    assert not path.exists()


def test_custom_ops_are_stored_by_name(path, device):
    rlx.register_custom_op("thrice", shape=lambda x: x, numpy=lambda x: 3 * x)
    g = rlx.Graph()
    g.set_outputs(g.custom("thrice", [g.input("x", (3,))]))
    (note,) = rlx.save_model(g, path, devices=["cpu"])
    assert "cpu: it is compiled when it is loaded" in note
    with rlx.compile(rlx.load_model(path), device) as compiled:
        np.testing.assert_array_equal(compiled.run({"x": np.float32([1, 2, 3])})[0], [3, 6, 9])


def test_damaged_files(path, tmp_path):
    rlx.save_model(model(), path, devices=["cpu"])
    raw = path.read_bytes()
    rng = np.random.default_rng(0)
    bad = tmp_path / "bad.rlx"
    refused = 0
    for index in range(300):
        data = bytearray(raw)
        if index % 3 == 0:
            data = data[: rng.integers(0, len(data))]
        else:
            # The front holds the structure; the rest is weights and plans.
            end = 20_000 if index % 3 == 1 else len(data)
            for place in rng.integers(0, end, 1 + index % 4):
                data[place] ^= 1 << rng.integers(0, 8)
        if data == raw:
            continue
        bad.write_bytes(data)
        with pytest.raises(rlx.ImportModelError, match="holds no model"):
            rlx.load_model(bad, check=True)
        refused += 1
    assert refused > 250
    for text in (b"", b"not a model", json.dumps({}).encode()):
        bad.write_bytes(text)
        with pytest.raises(rlx.ImportModelError):
            rlx.load_model(bad)
    with pytest.raises(FileNotFoundError):
        rlx.load_model(tmp_path / "nowhere.rlx")


def test_well_made_files_with_wrong_contents(path):
    """Checksums are no protection against who can compute them: every node is inferred and checked."""
    good = {"graph": json.loads(model().to_json()), "plans": {}}
    for change in (
        lambda data: data.pop("graph"),
        lambda data: data.update(plans=[1]),
        lambda data: data.update(plans={"a": 7}),
        lambda data: data["graph"]["nodes"][4].update(inputs=[99]),
        lambda data: data["graph"]["nodes"][4].update(op="no such op"),
        lambda data: data["graph"].update(outputs=[-1]),
        lambda data: data["graph"]["nodes"][0]["attrs"].update(shape=[-3]),
        lambda data: data["graph"]["param_values"].update(b={"$at": 3}),
    ):
        data = json.loads(json.dumps(good))
        change(data)
        path.write_bytes(container.dump("model", data, []))
        with pytest.raises(rlx.ImportModelError, match="holds no model"):
            rlx.load_model(path)
    path.write_bytes(container.dump("lowered", good, []))
    with pytest.raises(rlx.ImportModelError, match="the container holds no model"):
        rlx.load_model(path)
