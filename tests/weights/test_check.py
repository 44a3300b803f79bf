import pytest
import torch

from torch_ir.errors import WeightLoadError
from torch_ir.ir import IR, Constant, TensorMeta
from torch_ir.weights import check_weights

REMEDY = "Give the state_dict of the model that the IR was extracted from."


def ir_of(**shapes):
    return IR(
        [],
        [],
        [],
        [TensorMeta(key.replace("__", "."), shape, "float32") for key, shape in shapes.items()],
        model_name="Net",
    )


def refused(*args, **kwargs):
    with pytest.raises(WeightLoadError) as caught:
        check_weights(*args, **kwargs)
    return str(caught.value)


def test_right_weights_come_back_by_key():
    weights = {"l.weight": torch.ones(2, 3), "l.bias": torch.zeros(2)}
    resolved = check_weights(ir_of(l__weight=(2, 3), l__bias=(2,)), weights)
    assert resolved == weights  # the same tensor objects


def test_every_fault_is_in_one_error():
    ir = ir_of(
        a__weight=(2, 3), b__weight=(2, 3), c__weight=(2, 3), d__weight=(2,), e__weight=(1,)
    )
    message = refused(
        ir,
        {
            "a.wieght": torch.ones(2, 3),
            "b.weight": torch.ones(3, 2),
            "c.weight": torch.ones(2, 3, dtype=torch.float64),
            "d.weight": torch.ones(2, device="meta"),
            "e.weight": [1.0],
        },
    )
    assert message == (
        "the weights do not fit 'Net': 1 missing, 1 unexpected, 1 wrong shape, 1 wrong dtype, "
        "1 without values, 1 not a tensor\n"
        "    missing: 'a.weight' f32[2, 3]. Did you mean a.wieght?\n"
        "    unexpected: 'a.wieght' f32[2, 3]\n"
        "    wrong shape: 'b.weight': expected f32[2, 3], found f32[3, 2]\n"
        "    wrong dtype: 'c.weight': expected f32[2, 3], found f64[2, 3]\n"
        "    without values: 'd.weight': expected f32[2], found f32[2] on the meta device\n"
        "    not a tensor: 'e.weight': expected f32[1], found a list\n" + REMEDY
    )


def test_a_shape_that_would_broadcast_is_wrong():
    assert "wrong shape: 'bias': expected f32[4], found f32[1]" in refused(
        ir_of(bias=(4,)), {"bias": torch.ones(1)}
    )


def test_a_symbolic_dimension_takes_any_size():
    assert check_weights(ir_of(table=("s0", 3)), {"table": torch.ones(7, 3)})
    assert "expected f32[s0, 3], found f32[7, 4]" in refused(
        ir_of(table=("s0", 3)), {"table": torch.ones(7, 4)}
    )


def test_unexpected_tensors_are_refused_only_when_strict():
    ir, weights = ir_of(a=(1,)), {"a": torch.ones(1), "z": torch.ones(2)}
    assert "unexpected: 'z' f32[2]" in refused(ir, weights)
    assert list(check_weights(ir, weights, strict=False)) == ["a"]


def test_long_lists_are_cut_with_a_count():
    ir = ir_of(**{f"layer{index}": (1,) for index in range(25)})
    lines = refused(ir, {}).splitlines()
    assert lines[0] == "the weights do not fit 'Net': 25 missing"
    assert lines[-2:] == ["    missing: and 15 more", REMEDY]
    assert len(lines) == 13


def test_a_prefix_before_every_key_is_named():
    ir = ir_of(a__weight=(1,), b=(1,))
    message = refused(ir, {"module.a.weight": torch.ones(1), "module.b": torch.ones(1)})
    assert message.endswith(
        REMEDY + " Its keys are all there behind 'module.': remove that prefix."
    )


def test_values_that_no_state_dict_has_are_asked_for_as_constants():
    ir = ir_of(scale=(1,), fc=(1,)).replace(weight_name_mapping={"b_scale": "scale", "p_fc": "fc"})
    message = refused(ir, {})
    assert message.endswith(
        " A state_dict has no non-persistent buffers and no plain tensor attributes: "
        "give such values with constants= (--constants) for 'scale'."
    )
    resolved = check_weights(ir, {"fc": torch.ones(1)}, constants={"scale": torch.zeros(1)})
    assert resolved == {"scale": torch.zeros(1), "fc": torch.ones(1)}


def test_weights_go_before_constants():
    given = {"a": torch.ones(1)}
    assert check_weights(ir_of(a=(1,)), given, constants={"a": torch.zeros(1)}) == given


class TestTiedWeights:
    ir = ir_of(embed=(2,)).replace(weight_aliases={"head": "embed"})

    @pytest.mark.parametrize("key", ["embed", "head"])
    def test_either_key_serves(self, key):
        weight = torch.ones(2)
        assert check_weights(self.ir, {key: weight})["embed"] is weight

    def test_both_keys_serve_if_the_values_are_the_same_bits(self):
        nan = torch.tensor([float("nan"), 1.0])
        assert check_weights(self.ir, {"embed": nan, "head": nan.clone()})["embed"] is nan

    def test_different_values_are_a_fault(self):
        assert refused(self.ir, {"embed": torch.ones(2), "head": torch.zeros(2)}) == (
            "the weights do not fit 'Net': 1 tied but different\n"
            "    tied but different: 'embed' and 'head' are one weight, but their values differ\n"
            + REMEDY
        )

    def test_a_wrong_shape_is_told_by_the_key_that_was_given(self):
        assert "wrong shape: 'head': expected f32[2], found f32[3]" in refused(
            self.ir, {"head": torch.ones(3)}
        )


class TestConstants:
    ir = ir_of(a=(1,)).replace(constants={"table": Constant.from_list([1, 2], "int64")})

    def test_absence_is_no_fault(self):
        assert list(check_weights(self.ir, {"a": torch.ones(1)})) == ["a"]

    def test_a_given_one_overrides(self):
        table = torch.tensor([3, 4])
        assert check_weights(self.ir, {"a": torch.ones(1), "table": table})["table"] is table
        by_constants = check_weights(self.ir, {"a": torch.ones(1)}, constants={"table": table})
        assert by_constants["table"] is table

    def test_its_type_is_checked(self):
        assert "wrong dtype: 'table': expected i64[2], found f32[2]" in refused(
            self.ir, {"a": torch.ones(1), "table": torch.ones(2)}
        )


def test_weights_that_are_no_mapping_are_refused():
    for given, kind in ((None, "NoneType"), ([], "list"), ("model.pt", "str")):
        assert (
            refused(ir_of(a=(2,)), given)
            == f"weights are a mapping of names to tensors, got {kind}"
        )
