"""Executes a program: functionally and in time at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.errors import MachineFault
from tilewright.machine import (
    attention,
    dma,
    elementwise,
    matrix,
    normalize,
    pooling,
    resize,
    softmax,
)
from tilewright.machine.boxes import DDR
from tilewright.machine.checks import Checks, Watch, WatchMaker
from tilewright.machine.fault import (
    ILLEGAL,
    OUT_OF_RANGE,
    PORTS,
    SEMAPHORE,
    TARGET,
    Illegal,
    fault,
)
from tilewright.machine.memory import GroupMemory, Memory
from tilewright.machine.operands import Operands, operands
from tilewright.machine.timing import Timeline, simulate_time
from tilewright.program import isa
from tilewright.program.program import Program
from tilewright.targets import Target

Array = npt.NDArray[Any]

ENGINES: dict[type[isa.Instruction], Callable[[Any, Operands, GroupMemory], None]] = {
    isa.Load: dma.copy,
    isa.Store: dma.copy,
    isa.Convolve: matrix.convolve,
    isa.Deconvolve: matrix.deconvolve,
    isa.MatrixProduct: matrix.matrix_product,
    isa.Attend: attention.attend,
    isa.Add: elementwise.add,
    isa.AddConstant: elementwise.add_constant,
    isa.Multiply: elementwise.multiply,
    isa.Lookup8: elementwise.lookup8,
    isa.Lookup16: elementwise.lookup16,
    isa.ParametricRelu: elementwise.parametric_relu,
    isa.Rescale: elementwise.rescale,
    isa.Fill: elementwise.fill,
    isa.MaxPool: pooling.max_pool,
    isa.AveragePool: pooling.average_pool,
    isa.Reduce: pooling.reduce,
    isa.Softmax: softmax.softmax,
    isa.Resize: resize.resize,
    isa.Normalize: normalize.centred,
    isa.NormalizeRms: normalize.rms,
    isa.NormalizeL2: normalize.l2,
}
"""Instruction -> what it does to memory."""


@dataclass(frozen=True)
class RunResult:
    """Outputs of a run and when everything happened.

    Args:
        outputs: port name -> its bytes, u8 [bytes]; the caller knows type and shape.
    """

    outputs: dict[str, npt.NDArray[np.uint8]]
    timeline: Timeline

    @property
    def max_cycle(self) -> int:
        return self.timeline.max_cycle


class Machine:
    """One program in its machine.

    Args:
        constants: the bytes at the start of DDR.
        checks: makes the observer of each run.

    Raises:
        MachineFault: the program is of another target or does not fit it, or has an instruction
            that no hardware could execute.
    """

    def __init__(
        self, program: Program, target: Target, constants: bytes, checks: WatchMaker = Checks
    ) -> None:
        self._program = program
        self._target = target
        self._constants = np.frombuffer(constants, np.uint8)
        self._checks = checks
        _check_fit(program, target, len(constants))
        self._operands = [_located(program, i) for i in range(len(program.commands))]

    def run(self, inputs: Mapping[str, Array]) -> RunResult:
        """Run once.

        Args:
            inputs: port name -> codes in stored order, any dtype of the right size.

        Raises:
            MachineFault: wrong inputs, or whatever stops the program; command, engine, node and
                address are named.
        """
        program = self._program
        memory = Memory(program.groups, program.sram_bytes, program.ddr_bytes)
        ddr = memory.space(DDR)
        ddr[: len(self._constants)] = self._constants
        for port in program.inputs:
            ddr[port.address : port.address + port.bytes] = _input_bytes(
                inputs, port.name, port.bytes
            )
        unknown = sorted(set(inputs) - {p.name for p in program.inputs})
        if unknown:
            raise MachineFault(f"the program has no input {unknown[0]!r}", code=PORTS)
        watch = self._checks(program, self._target, self._operands)
        execution = _Execution(program, self._operands, memory, watch)
        timeline = simulate_time(program, self._target, execution)
        watch.ended()
        outputs = {p.name: ddr[p.address : p.address + p.bytes].copy() for p in program.outputs}
        return RunResult(outputs, timeline)


class _Execution:
    """Does what an instruction means when it starts; its results count when it ends."""

    def __init__(
        self, program: Program, boxes: list[Operands], memory: Memory, watch: Watch
    ) -> None:
        self._program = program
        self._operands = boxes
        self._groups = [GroupMemory(memory, g) for g in range(program.groups)]
        self._watch = watch

    def started(self, index: int) -> None:
        self._watch.started(index)
        command = self._program.commands[index]
        execute = ENGINES[type(command.instruction)]
        try:
            execute(command.instruction, self._operands[index], self._groups[command.group])
        except Illegal as reason:
            raise fault(self._program, index, str(reason), ILLEGAL) from None

    def finished(self, index: int) -> None:
        self._watch.finished(index)


def _located(program: Program, index: int) -> Operands:
    """Operands of a command, every byte inside its memory."""
    try:
        boxes = operands(program.commands[index].instruction)
    except Illegal as reason:
        raise fault(program, index, str(reason), ILLEGAL) from None
    for box in (*boxes.reads.values(), *boxes.writes.values()):
        limit = program.ddr_bytes if box.in_ddr else program.sram_bytes
        if box.end > limit:
            what = f"reaches {box.end:#x} of {limit:#x} bytes with {box.field}"
            raise fault(program, index, what, OUT_OF_RANGE, box.address)
    return boxes


def _check_fit(program: Program, target: Target, constants: int) -> None:
    if program.target_digest != target.digest:
        raise MachineFault(
            f"the program was made for {program.target!r} in another description than this one",
            fix="build it again",
            code=TARGET,
        )
    if program.groups > target.groups or program.sram_bytes > target.sram_bytes:
        raise MachineFault(
            f"the program needs {program.groups} groups of {program.sram_bytes} bytes, "
            f"{target.name} has {target.groups} of {target.sram_bytes}",
            code=TARGET,
        )
    if program.constants_bytes != constants:
        raise MachineFault(
            f"the program needs {program.constants_bytes} bytes of constants, not {constants}",
            code=PORTS,
        )
    for port in (*program.inputs, *program.outputs):
        if not program.constants_bytes <= port.address <= program.ddr_bytes - port.bytes:
            raise MachineFault(
                f"port {port.name!r} lies outside DDR at address {port.address:#x}", code=PORTS
            )
    semaphores = program.groups * len(isa.Engine)
    for index, command in enumerate(program.commands):
        if command.group >= program.groups:
            raise fault(program, index, f"is of group {command.group}", ILLEGAL)
        for wait in command.waits:
            if wait.semaphore >= semaphores:
                what = f"waits for semaphore {wait.semaphore} of {semaphores}"
                raise fault(program, index, what, SEMAPHORE)


def _input_bytes(inputs: Mapping[str, Array], name: str, size: int) -> npt.NDArray[np.uint8]:
    if name not in inputs:
        raise MachineFault(f"input {name!r} is missing", code=PORTS)
    array = np.ascontiguousarray(inputs[name])
    if array.nbytes != size:
        raise MachineFault(f"input {name!r} has {array.nbytes} bytes, not {size}", code=PORTS)
    return array.reshape(-1).view(np.uint8)
