"""Small wrong changes to a module, one at a time: another comparison, a condition turned around, a statement left out,
a number that is off by one.

Left alone: annotations, docstrings, decorators, texts, what is raised with which words, and ``assert``.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A wrong version of a module; ``what``: line, and the line before and after."""

    line: int
    what: str
    tree: ast.Module


def mutants(source: str) -> Iterator[Mutant]:
    """All mutants of a module, in the order of its lines."""
    tree = ast.parse(source)
    found: list[tuple[ast.AST, str, ast.AST]] = []
    _Finder(found).visit(tree)
    for node, field, wrong in found:
        yield _changed(tree, node, field, wrong)


def _changed(tree: ast.Module, node: ast.AST, field: str, wrong: ast.AST) -> Mutant:
    """The tree with one node in the place of another; the tree itself stays as it is."""
    name, _, index = field.partition(".")
    memo: dict[int, ast.AST] = {id(node): copy.copy(node)}
    mutated = copy.deepcopy(tree, memo)
    target = memo[id(node)]
    if index:
        values = list(getattr(target, name))
        where, values[int(index)] = values[int(index)], wrong
        setattr(target, name, values)
    else:
        where = getattr(target, name)
        setattr(target, name, wrong)
    if isinstance(wrong, ast.Pass):
        what = f"{_short(ast.unparse(where))}  is left out"
    else:
        shown = node if not isinstance(node, ast.FunctionDef | ast.If) else where
        after = target if shown is node else wrong
        what = f"{_short(ast.unparse(shown))}  ->  {_short(ast.unparse(after))}"
    line = getattr(where, "lineno", getattr(node, "lineno", 0))
    return Mutant(line, what, ast.fix_missing_locations(mutated))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 90 else text[:87] + "..."


class _Finder(ast.NodeVisitor):
    """Collects (node, field, what to put there)."""

    def __init__(self, found: list[tuple[ast.AST, str, ast.AST]]) -> None:
        self._found = found

    # ---- left alone ---------------------------------------------------------------------------------

    def visit_Assert(self, node: ast.Assert) -> None:
        return

    def visit_Raise(self, node: ast.Raise) -> None:
        return

    def visit_Import(self, node: ast.Import) -> None:
        return

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._value(node, "value", node.value)

    def visit_Module(self, node: ast.Module) -> None:
        for statement in node.body:
            is_alias = isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp)
            if not is_alias:
                self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._body(node, "body")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    # ---- statements ---------------------------------------------------------------------------------

    def _body(self, node: ast.AST, name: str) -> None:
        for place, statement in enumerate(getattr(node, name)):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            if isinstance(
                statement, ast.Expr | ast.Assign | ast.AugAssign | ast.Continue | ast.Break
            ):
                self._add(node, f"{name}.{place}", ast.Pass())
            self.visit(statement)

    def visit_If(self, node: ast.If) -> None:
        if not isinstance(node.test, ast.Compare | ast.UnaryOp):  # which are turned around anyway
            self._add(node, "test", ast.UnaryOp(ast.Not(), node.test))
        self._value(node, "test", node.test)
        self._body(node, "body")
        self._body(node, "orelse")

    def visit_While(self, node: ast.While) -> None:
        self._value(node, "test", node.test)
        self._body(node, "body")

    def visit_For(self, node: ast.For) -> None:
        self._value(node, "iter", node.iter)
        self._body(node, "body")

    def visit_match_case(self, node: ast.match_case) -> None:
        if node.guard is not None:
            self._value(node, "guard", node.guard)
        self._body(node, "body")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._value(node, "value", node.value)

    # ---- expressions --------------------------------------------------------------------------------

    def _value(self, parent: ast.AST, field: str, value: ast.expr) -> None:
        """A value at a place of its own, so that another can stand there."""
        if isinstance(value, ast.Constant):
            self._constant(parent, field, value)
        elif isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
            self._add(parent, field, value.operand)
        self.visit(value)

    def _constant(self, parent: ast.AST, field: str, value: ast.Constant) -> None:
        if isinstance(value.value, bool):
            self._add(parent, field, ast.Constant(not value.value))
        elif isinstance(value.value, int):
            self._add(parent, field, ast.Constant(value.value + 1))

    def visit_Compare(self, node: ast.Compare) -> None:
        for place, operator in enumerate(node.ops):
            for wrong in _COMPARISONS[type(operator)]:
                self._add(node, f"ops.{place}", wrong())
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._add(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        wrong = _OPERATORS.get(type(node.op))
        if wrong is not None:
            self._add(node, "op", wrong())
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        wrong = _OPERATORS.get(type(node.op))
        if wrong is not None:
            self._add(node, "op", wrong())
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._add(node, "test", ast.UnaryOp(ast.Not(), node.test))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _NAMES:
            self._add(node, "func", ast.Name(_NAMES[node.func.id], ast.Load()))
        if isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            self.visit(node.args[0])
        else:
            self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for place, condition in enumerate(node.ifs):
            self._add(node, f"ifs.{place}", ast.Constant(True))
            self.visit(condition)
        self.visit(node.iter)

    def generic_visit(self, node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            for place, each in enumerate(values):
                if isinstance(each, ast.Constant):
                    self._constant(
                        node, f"{name}.{place}" if isinstance(value, list) else name, each
                    )
                elif isinstance(each, ast.AST):
                    self.visit(each)

    def _add(self, node: ast.AST, field: str, wrong: ast.AST) -> None:
        self._found.append((node, field, wrong))
