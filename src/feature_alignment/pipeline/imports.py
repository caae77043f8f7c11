"""Import closures: which library files a module depends on, so that an edit reruns just its users.

Snakemake does not see edits to imported modules. The hash of the closure of the module that a rule
calls is therefore one of the rule's parameters, and each provenance file records it.
"""

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = "feature_alignment"
SOURCE_ROOT = Path(__file__).resolve().parents[2]


def import_closure(*modules: str) -> list[Path]:
    """Files of this package that the modules import, directly or not, themselves included.

    Imports inside functions count; imports under `if TYPE_CHECKING` do not.

    Args:
        modules: dotted names, such as "feature_alignment.kernels.tangent".

    Returns:
        Sorted absolute paths.

    Raises:
        ModuleNotFoundError: if a name is not a module of this package.
    """
    for module in modules:
        if _module_file(module) is None:
            raise ModuleNotFoundError(f"{module} is not a module of {PACKAGE}")
    pending, seen = list(modules), set[str]()
    while pending:
        module = pending.pop()
        if module not in seen:
            seen.add(module)
            pending.extend(_internal_imports(module))
    return sorted(path for name in seen if (path := _module_file(name)) is not None)


def external_imports(*modules: str) -> set[str]:
    """Top-level names of the other packages that the closure of the modules imports."""
    return {
        name.partition(".")[0]
        for path in import_closure(*modules)
        for name in _imported_names(path)
        if name.partition(".")[0] != PACKAGE
    }


def closure_hash(*modules: str) -> str:
    """SHA-256 over the names and contents of the import closure, in hexadecimal."""
    digest = hashlib.sha256()
    for path in import_closure(*modules):
        digest.update(path.relative_to(SOURCE_ROOT).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def _module_file(module: str) -> Path | None:
    base = SOURCE_ROOT.joinpath(*module.split("."))
    if (base / "__init__.py").is_file():
        return base / "__init__.py"
    return base.with_suffix(".py") if base.with_suffix(".py").is_file() else None


@cache
def _internal_imports(module: str) -> frozenset[str]:
    path = _module_file(module)
    assert path is not None
    found = set[str]()
    # Importing a.b.c runs a/__init__ and a.b/__init__ first, so those count for the module too.
    for name in [module, *_imported_names(path)]:
        parts = name.split(".")
        if parts[0] != PACKAGE:
            continue
        prefixes = [".".join(parts[: i + 1]) for i in range(len(parts))]
        # The last part of `from module import name` may be an attribute rather than a module.
        found.update(prefix for prefix in prefixes if _module_file(prefix) is not None)
    return frozenset(found)


@cache
def _imported_names(path: Path) -> tuple[str, ...]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return tuple(_walk_imports(tree))


def _walk_imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        if node.level:
            raise ImportError("relative imports are not used in this package; write the full name")
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        for child in node.orelse:
            yield from _walk_imports(child)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _walk_imports(child)
