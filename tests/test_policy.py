"""DevicePolicy and the environment: what may be picked, and that nothing wrong passes in silence."""

import dataclasses
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from samples import looped

import rlx
from rlx import Benchmark, Device, DevicePolicy
from rlx.device import policy as policy_module
from rlx.device.names import info_of
from rlx.device.policy import canonical, means

CPU, GPU = Device("cpu"), Device("webgpu")
FIELDS = {
    "DEVICES": "allow",
    "DENY_DEVICES": "deny",
    "PREFER_DEVICES": "prefer",
    "DEVICE_CHAIN": "chain",
}
VARIABLES = [*FIELDS, "DEVICE", "BENCHMARK_PICK", "POWER"]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for prefix in ("RLX_", "APP_"):
        for name in VARIABLES:
            monkeypatch.delenv(prefix + name, raising=False)
    return monkeypatch


def names(devices):
    return None if devices is None else [str(device) for device in devices]


@pytest.mark.parametrize("prefix", ["RLX_", "APP_"])
def test_every_variable_is_read_under_its_prefix(environment, prefix):
    environment.setenv(f"{prefix}DEVICES", "cpu, GPU:1,,vk")
    environment.setenv(f"{prefix}DENY_DEVICES", "cuda")
    environment.setenv(f"{prefix}PREFER_DEVICES", "gpu,cpu")
    environment.setenv(f"{prefix}BENCHMARK_PICK", "7")
    environment.setenv(f"{prefix}DEVICE", "wgpu")
    environment.setenv(f"{prefix}DEVICE_CHAIN", "cuda,cpu")
    policy = DevicePolicy.from_env(prefix)
    assert names(policy.allow) == ["cpu", "webgpu:1", "vulkan"]
    assert names(policy.deny) == ["cuda"]
    assert names(policy.prefer) == ["webgpu", "cpu"]
    assert policy.pick == Benchmark(7)
    assert policy.device == GPU
    assert names(policy.chain) == ["cuda", "cpu"]
    assert policy.device_source == f"environment variable {prefix}DEVICE"
    other = "APP_" if prefix == "RLX_" else "RLX_"
    assert DevicePolicy.from_env(other) == DevicePolicy()


@pytest.mark.parametrize("prefix", ["RLX_", "APP_"])
@pytest.mark.parametrize("name", [*FIELDS, "DEVICE"])
def test_a_bad_token_is_named_with_its_variable(environment, prefix, name):
    environment.setenv(prefix + name, "gpuu" if name == "DEVICE" else "cpu,gpuu")
    with pytest.raises(rlx.DeviceParseError) as caught:
        DevicePolicy.from_env(prefix)
    assert f"environment variable {prefix}{name}]" in str(caught.value)
    assert "'gpuu'" in str(caught.value)
    assert "did you mean 'gpu'" in str(caught.value)


@looped("text", ["-1", "1.5", "many", "1e3", "0x10", "٣", "9" * 30])
def test_a_bad_number_of_runs_is_named_with_its_variable(environment, text):
    environment.setenv("RLX_BENCHMARK_PICK", text)
    with pytest.raises(rlx.InputError, match="RLX_BENCHMARK_PICK") as caught:
        DevicePolicy.from_env()
    assert text in str(caught.value)


@pytest.mark.parametrize("name", FIELDS)
def test_a_list_without_an_entry_is_refused(environment, name):
    environment.setenv(f"RLX_{name}", " , ,")
    with pytest.raises(rlx.InputError, match=f"RLX_{name} names no device"):
        DevicePolicy.from_env()


def test_zero_runs_go_by_estimates(environment):
    environment.setenv("RLX_BENCHMARK_PICK", "0")
    assert DevicePolicy.from_env().pick == "cost"


@looped("prefix", ["RLX-", "1_", "A=", "a b", None, 5])
def test_a_prefix_that_no_variable_has_is_refused(prefix):
    with pytest.raises(rlx.InputError, match="prefix"):
        DevicePolicy.from_env(prefix)


# --- fields ---------------------------------------------------------------------------------------


def test_fields_take_devices_names_and_lists():
    expected = DevicePolicy(allow=[CPU, "webgpu"])
    for given_as in ("cpu,webgpu", ["cpu", GPU], (CPU, GPU), iter(["CPU", "gpu"])):
        assert DevicePolicy(allow=given_as) == expected
    assert DevicePolicy(deny=CPU).deny == (CPU,)
    assert names(DevicePolicy(prefer="cpu,gpu,cpu").prefer) == ["cpu", "webgpu"]
    assert DevicePolicy(allow=()).allow == ()


@looped("field", ["allow", "deny", "prefer", "chain"])
@looped("value", [5, [None], [5], object()])
def test_fields_that_are_no_devices_are_refused(field, value):
    with pytest.raises(rlx.InputError, match=field):
        DevicePolicy(**{field: value})
    with pytest.raises(rlx.DeviceParseError, match="gpuu"):
        DevicePolicy(**{field: ["cpu", "gpuu"]})


@pytest.mark.parametrize("pick", ["costs", None, Benchmark, 5])
def test_a_pick_that_is_none_is_refused(pick):
    with pytest.raises(rlx.InputError, match="pick"):
        DevicePolicy(pick=pick)


@looped("runs", [0, -1, 1.0, True, None, "3"])
def test_a_benchmark_of_no_runs_is_refused(runs):
    with pytest.raises(rlx.InputError, match="runs"):
        Benchmark(runs)


def test_a_policy_is_frozen_and_can_be_varied():
    policy = DevicePolicy(deny="cpu")
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.deny = ()
    assert dataclasses.replace(policy, prefer="gpu") == DevicePolicy(deny="cpu", prefer="gpu")


# --- what a name means ----------------------------------------------------------------------------


def test_a_name_without_a_number_means_every_device_of_that_name():
    first, second = Device("webgpu", 0, numbered=True), Device("webgpu", 1, numbered=True)
    for policy, denied in {
        DevicePolicy(deny="webgpu"): (True, True),
        DevicePolicy(deny="webgpu:0"): (True, False),
        DevicePolicy(deny="webgpu:1"): (False, True),
        DevicePolicy(allow="cpu,webgpu:1"): (True, False),
        DevicePolicy(allow="webgpu", deny="webgpu:1"): (False, True),
        DevicePolicy(allow=()): (True, True),
    }.items():
        assert tuple(policy.excludes(d) is not None for d in (first, second)) == denied, policy


def test_a_device_that_was_found_means_itself():
    first = Device("webgpu", 0, numbered=True)
    assert (
        DevicePolicy(deny=[first]) == DevicePolicy(deny="webgpu:0") != DevicePolicy(deny="webgpu")
    )
    assert DevicePolicy(deny=rlx.available_devices()[0]) == DevicePolicy(deny="cpu:0")


def test_the_name_of_an_api_means_the_adapter(webgpu):
    assert canonical(Device.parse("vulkan")) == GPU
    assert means(Device.parse("vulkan"), GPU)
    assert means(GPU, Device.parse("vulkan"))
    assert not means(Device.parse("metal"), GPU)
    assert DevicePolicy(deny="vulkan").excludes(GPU) == "the policy denies vulkan"


# --- the pick -------------------------------------------------------------------------------------

TIMES = {CPU: 100.0, GPU: 110.0, Device("cuda"): 111.0}


def test_prefer_takes_the_faster_of_the_devices_of_one_name():
    cards = {Device("webgpu", index, numbered=True): 108.0 - index for index in range(3)}
    assert DevicePolicy(prefer="webgpu").best({CPU: 100.0, **cards}) == Device("webgpu", 2)


# --- fuzzing --------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    ["cpu", "gpu", "webgpu:1", "vulkan", "cuda", "reference", "auto", "", " ", "gpuu", "cpu:", ":1"]
)
TOKENS = st.one_of(WORDS, st.text(st.characters(exclude_characters="\0,", codec="utf-8")))
TEXTS = st.one_of(st.lists(TOKENS, max_size=4).map(",".join), WORDS)


def is_device(token):
    try:
        Device.parse(token)
    except rlx.DeviceParseError:
        return False
    return True


def attempt(make):
    """Returns the result, or None and the message; any other kind of error fails the test."""
    try:
        return make(), ""
    except rlx.RlxError as error:
        return None, str(error)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(VARIABLES), st.sampled_from(["RLX_", "APP_", ""]), TEXTS)
@example("DEVICE", "RLX_", "cpu,gpu")
@example("DEVICES", "RLX_", "cpu:99999999999999999999")
@example("DEVICES", "RLX_", "cpu:²")
def test_the_environment_is_read_or_refused_by_name(name, prefix, text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(prefix + name, text)
        stripped = text.strip()
        parts = [part for part in stripped.split(",") if part.strip()]
        if name in FIELDS:
            bad = [part for part in parts if not is_device(part)]
            empty = bool(stripped) and not parts
        elif name == "DEVICE":
            bad, empty = [stripped] * (bool(stripped) and not is_device(stripped)), False
        elif name == "POWER":
            known = ("", "auto", "low", "high")
            bad, empty = [stripped] * (stripped.lower() not in known), False
        else:
            number = stripped.isascii() and stripped.isdecimal() and len(stripped) <= 9
            bad, empty = [stripped] * (bool(stripped) and not number), False
        policy, message = attempt(lambda: DevicePolicy.from_env(prefix))
        assert (policy is None) == bool(bad or empty), message
        if policy is None:
            assert prefix + name in message
            assert not bad or repr(bad[0]) in message
        elif name in FIELDS:
            expected = {(str(d), d.numbered) for d in map(Device.parse, parts)}
            result = getattr(policy, FIELDS[name]) or ()
            assert {(str(d), d.numbered) for d in result} == expected
        elif name == "DEVICE":
            assert policy.device == (Device.parse(stripped) if stripped else None)
        elif name == "POWER":
            assert policy.power == (stripped.lower() or "auto")
        else:
            runs = int(stripped or 0)
            assert policy.pick == (Benchmark(runs) if runs else "cost")


VALUES = st.one_of(
    st.none(), TEXTS, st.lists(st.one_of(TOKENS, st.just(CPU), st.integers()), max_size=4)
)
PICKS = st.one_of(st.just("cost"), st.builds(Benchmark, st.integers(1, 9)), st.integers())


@settings(max_examples=200, deadline=None)
@given(VALUES, VALUES, VALUES, VALUES, PICKS)
def test_a_policy_is_made_or_refused_by_field(allow, deny, prefer, chain, pick):
    lists = {"allow": allow, "deny": deny, "prefer": prefer, "chain": chain}
    policy, message = attempt(lambda: DevicePolicy(**lists, pick=pick))
    if policy is None:
        assert any(f"DevicePolicy.{name}]" in message for name in lists) or "pick" in message
        return
    # Whatever was accepted picks only what it may, or nothing.
    for device in (CPU, GPU, Device("cuda")):
        denied = any(means(item, device) for item in policy.deny)
        allowed = policy.allow is None or any(means(item, device) for item in policy.allow)
        assert (policy.excludes(device) is None) == (allowed and not denied)
    best = policy.best(TIMES)
    assert TIMES[best] <= 110.0
    assert best == CPU or any(means(item, best) for item in policy.prefer)


# --- power ------------------------------------------------------------------------------------------------------


@pytest.fixture
def laptop(monkeypatch):
    """Two GPUs: the one inside the processor is "webgpu:1"."""
    kinds = {0: "discrete", 1: "integrated", 2: "software"}

    def info_of(device):
        if device.index > 2:
            raise rlx.DeviceUnavailableError("gone")
        return rlx.DeviceInfo(device.backend, device.index, "a GPU", kind=kinds[device.index])

    monkeypatch.setattr(policy_module, "info_of", info_of)
    return [Device("webgpu", index, numbered=True) for index in range(4)]


@pytest.mark.parametrize(
    ("power", "battery", "inside_ns", "expected"),
    [
        ("low", False, 190.0, 1),
        ("low", False, 210.0, 0),  # more than twice the least
        ("high", True, 190.0, 0),
        ("auto", True, 190.0, 1),
        ("auto", False, 190.0, 0),
    ],
)
def test_power(laptop, monkeypatch, power, battery, inside_ns, expected):
    monkeypatch.setattr(policy_module, "on_battery", lambda: battery)
    times = {laptop[0]: 100.0, laptop[1]: inside_ns, laptop[2]: 150.0, laptop[3]: 120.0}
    assert DevicePolicy(power=power).best(times).index == expected
    # Preferred devices come first.
    assert DevicePolicy(power=power, prefer="webgpu:0").best(times).index == 0


def test_where_nothing_is_inside_power_changes_nothing(laptop):
    times = {laptop[0]: 100.0, laptop[2]: 90.0}
    assert DevicePolicy(power="low").best(times).index == 2


def test_power_is_checked(monkeypatch):
    with pytest.raises(rlx.InputError, match=r"\[DevicePolicy\] power"):
        DevicePolicy(power="much")
    monkeypatch.setenv("RLX_POWER", "low")
    assert DevicePolicy.from_env().power == "low"
    assert DevicePolicy(power="low") != DevicePolicy()
    monkeypatch.setenv("RLX_POWER", "none")
    with pytest.raises(rlx.InputError, match="RLX_POWER"):
        DevicePolicy.from_env()


@pytest.mark.parametrize(
    ("battery", "expected"),
    [(None, False), (SimpleNamespace(power_plugged=None), False),
     (SimpleNamespace(power_plugged=True), False), (SimpleNamespace(power_plugged=False), True)],
)  # fmt: skip
def test_on_battery(monkeypatch, battery, expected):
    psutil = pytest.importorskip("psutil")
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    assert policy_module.on_battery() is expected


def test_every_device_has_a_kind(device):
    kind = info_of(Device.parse(device)).kind
    assert kind in {
        "cpu": ("cpu",), "reference": ("",),
        "webgpu": ("integrated", "discrete", "virtual", "software"),
    }[device]  # fmt: skip
