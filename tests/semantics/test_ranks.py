"""Collectives: named groups, from extraction to processes, and their meaning over ranks."""

import os
import socket
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import multiprocessing

import torch_ir
from torch_ir import CompileError, ExecutionError, ExportError, denote_ranks, extract_ir, parse
from torch_ir.passes import common_subexpressions, eliminate_dead_code


class Exchange(torch.nn.Module):
    """Every collective that extraction gives, of one group."""

    def __init__(self, group):
        super().__init__()
        self.group = group
        self.linear = torch.nn.Linear(4, 4, bias=False)

    def forward(self, x):
        y = self.linear(x)
        return (
            collectives.all_reduce(y, "sum", self.group) * 2,
            collectives.all_reduce(y, "max", self.group),
            collectives.all_gather_tensor(y, 0, self.group),
            collectives.reduce_scatter_tensor(y, "sum", 0, self.group),
            collectives.all_to_all_single(y, None, None, self.group),
            collectives.broadcast(y, 1, self.group),
            *collectives.all_reduce_coalesced([y, x], "avg", self.group),
            *collectives.all_gather_into_tensor_coalesced([y, x], self.group),
        )


@contextmanager
def process_group(backend, rank=0, size=2, port=None):
    """The default process group; ``fake`` sends nothing, and one process suffices."""
    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        where = {"store": FakeStore()}
    else:
        where = {"init_method": f"tcp://127.0.0.1:{port}"}
    dist.init_process_group(backend, rank=rank, world_size=size, **where)
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


@cache
def exchange_program():
    with process_group("fake") as group:
        return extract_ir(Exchange(group), (torch.ones(4, 4),), groups={"tp": group})


def of_rank(rank):
    generator = torch.Generator().manual_seed(rank)
    weight = torch.randn(4, 4, generator=generator)
    return {"linear.weight": weight}, torch.randn(4, 4, generator=generator)


def test_the_file_has_the_name_and_no_number():
    ir = exchange_program()
    assert {n.attrs["group_name"] for n in ir.nodes if "group_name" in n.attrs} == {"tp"}
    assert parse(str(ir)) == ir
    assert torch_ir.deserialize_ir(torch_ir.serialize_ir(ir)) == ir
    codes = {finding.code for finding in ir.check()}
    assert codes == {"forbidden-operator"}


def test_a_group_without_a_name_is_refused():
    with process_group("fake") as group, pytest.raises(ExportError) as error:
        extract_ir(Exchange(group), (torch.ones(4, 4),))
    assert "is a collective of a process group that has no name" in str(error.value)


def test_collectives_run_only_where_groups_are_given():
    ir = exchange_program()
    weights, _ = of_rank(0)
    with pytest.raises(CompileError, match="rule 6: it reaches other processes, and no groups="):
        torch_ir.compile_graph(ir, weights)
    with pytest.raises(CompileError, match=r"the group 'tp' is not given\. Give it: groups="):
        torch_ir.compile_graph(ir, weights, groups={"tq": None})
    with process_group("fake", size=4) as group, pytest.raises(CompileError) as error:
        torch_ir.compile_graph(ir, weights, groups={"tp": group})
    assert "it is made for 2 ranks, and the group 'tp' has 4" in str(error.value)


def test_no_pass_drops_merges_or_moves_them():
    reduce = '_c10d_functional.all_reduce.default(input=%x, reduce_op="sum", group_name="tp")'
    ir = parse(f"""ir {{
      input %x: f32[2]
      %a: f32[2] = {reduce}
      %b: f32[2] = {reduce}
      %c: f32[2] = aten.relu.default(%b)
      return %c
    }}""")
    assert eliminate_dead_code(common_subexpressions(ir)) == ir
    assert [n.name for n in torch_ir.plan_memory(ir, reorder=True).ir.nodes] == ["a", "b", "c"]


def rows(*numbers):
    return np.array(numbers, "float32")


def collective(line, *given, groups=((0, 1),), size=2):
    ir = parse(f"ir {{\ninput %x: f32[{size}]\n{line}\nreturn %y\n}}")
    found = denote_ranks(ir, [{}] * len(given), [[x] for x in given], groups={"tp": groups})
    return [result[0].tolist() for result in found]


class TestMeaning:
    def test_sums_in_the_order_of_ranks_within_each_group(self):
        line = (
            "%y: f32[2] = _c10d_functional.all_reduce.default("
            'input=%x, reduce_op="sum", group_name="tp")'
        )
        given = [rows(1, 2), rows(10, 20), rows(100, 200), rows(1000, 2000)]
        assert collective(line, *given, groups=[[0, 2], [1, 3]]) == [
            [101, 202],
            [1010, 2020],
            [101, 202],
            [1010, 2020],
        ]

    def test_a_sum_in_place_is_that_of_a_program_made_functional(self):
        ir = parse("""ir {
          input %x: f32[2]
          %h: f32[2] = aten.neg.default(%x)
          %s: f32[2] = _c10d_functional.all_reduce_.default(%h, reduce_op="sum", group_name="tp")
          %w: f32[2] = _c10d_functional.wait_tensor.default(%s)
          %y: f32[2] = aten.neg.default(%h)
          return %y
        }""")
        given = [[rows(1, 2)], [rows(10, 20)]]
        found = denote_ranks(torch_ir.functionalize(ir), [{}, {}], given, groups={"tp": [[0, 1]]})
        assert [result[0].tolist() for result in found] == [[11, 22], [11, 22]]

    def test_tensors_of_a_list_are_waited_for_at_once(self):
        ir = parse("""ir {
          input %x: f32[2]
          %a: f32[2] = _c10d_functional.broadcast.default(input=%x, src=1, group_name="tp")
          %b: f32[2] = _c10d_functional.broadcast.default(input=%x, src=0, group_name="tp")
          %y: f32[2], %z: f32[2] = w: _c10d_functional.wait_tensors.default(tensors=[%a, %b])
          return %y, %z
        }""")
        given = [[rows(1, 20)], [rows(10, 2)]]
        found = denote_ranks(ir, [{}, {}], given, groups={"tp": [[0, 1]]})
        assert [[r.tolist() for r in of_rank] for of_rank in found] == [[[10, 2], [1, 20]]] * 2

    def test_uneven_rows_to_all(self):
        ir = [
            parse(
                f"ir {{\ninput %x: f32[3]\n%y: f32[{sum(out)}] = "
                "_c10d_functional_autograd.all_to_all_single.default(input=%x, "
                f'output_split_sizes={out}, input_split_sizes={into}, group_name="tp")\n'
                "return %y\n}"
            )
            for into, out in (([1, 2], [1, 3]), ([3, 0], [2, 0]))
        ]
        found = denote_ranks(
            ir, [{}, {}], [[rows(1, 2, 3)], [rows(4, 5, 6)]], groups={"tp": [[0, 1]]}
        )
        assert [result[0].tolist() for result in found] == [[1, 4, 5, 6], [2, 3]]

    def test_ranks_that_call_different_things(self):
        first = parse(
            "ir {\ninput %x: f32[2]\n%y: f32[2] = _c10d_functional.broadcast.default("
            'input=%x, src=0, group_name="tp")\nreturn %y\n}'
        )
        second = first.replace(nodes=(), graph_outputs=first.graph_inputs)
        with pytest.raises(ExecutionError, match="rank 1 has ended before it calls this"):
            denote_ranks([first, second], [{}, {}], [[rows(1, 2)]] * 2, groups={"tp": [[0, 1]]})
        with pytest.raises(ExecutionError, match="broadcast has no meaning on one rank alone"):
            torch_ir.denote(first, {}, [rows(1, 2)])


def run_rank(rank, port, text, queue):
    with process_group("gloo", rank, 2, port) as group:
        weights, x = of_rank(rank)
        ir = parse(text)
        graph = torch_ir.compile_graph(ir, weights, groups={"tp": group})
        got = graph.eval((x,))
        model = Exchange(group)
        model.load_state_dict(weights)
        with torch.no_grad():
            same = [bool(torch.equal(a, b)) for a, b in zip(got, model(x), strict=True)]
        queue.put((rank, same, [tensor.numpy().tolist() for tensor in got]))
    os._exit(0)  # at the usual end, threads of gloo may still run, and C++ aborts the process


def test_two_processes_have_the_bits_of_eager_and_mean_what_is_denoted():
    text = str(exchange_program())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    processes = [
        context.Process(target=run_rank, args=(rank, port, text, queue)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    found = {rank: (same, got) for rank, same, got in [queue.get(), queue.get()]}
    given = [of_rank(rank) for rank in range(2)]
    meant = denote_ranks(
        parse(text), [g[0] for g in given], [[g[1]] for g in given], groups={"tp": [[0, 1]]}
    )
    for rank in range(2):
        same, got = found[rank]
        assert all(same)
        for value, array in zip(got, meant[rank], strict=True):
            np.testing.assert_allclose(np.array(value, "float32"), array, rtol=1e-5, atol=1e-6)
