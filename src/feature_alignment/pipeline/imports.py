"""Import closures: which library files a module depends on, so that an edit reruns just its users.

Snakemake does not see edits to imported modules, so a hash of what the closure's code means is one
of each rule's parameters. The papers' `parameters` modules do not count: specs have their values.
"""

import ast
import hashlib
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from feature_alignment import _HOMES
from feature_alignment.errors import UserError
from feature_alignment.files import Memory, sha256_of

PACKAGE = "feature_alignment"
SOURCE_ROOT = Path(__file__).resolve().parents[2]
MEMORY = Memory("sources.json", SOURCE_ROOT)
"""What was read from each file, kept because parsing all of them takes a second."""
_ONLY_TYPES = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
_IN_THE_SPEC = re.compile(rf"{PACKAGE}\.papers\.\w+\.parameters")


def import_closure(*modules: str) -> dict[str, Path]:
    """Modules of this package that the given ones import, these included, by name with their files.

    Imports inside functions count; imports under `if TYPE_CHECKING` do not. A name imported from
    the package itself counts as its defining module, `import feature_alignment` as all of these.

    Raises:
        ModuleNotFoundError: if a name is not a module of this package.
        UserError: if a module imports from one of this package that there is not; or a paper's
            from another paper's, as a paper made by copying another would do unseen.
    """
    pending, found = list(modules), dict[str, Path]()
    while pending:
        module = pending.pop()
        file = _module_file(module)
        if file is None:
            raise ModuleNotFoundError(f"{module} is not a module of {PACKAGE}")
        if module not in found:
            found[module] = file
            pending.extend(_internal_imports(module, file))
    return dict(sorted(found.items()))


def external_imports(*modules: str) -> set[str]:
    """Top-level names of the other packages that the closure of the modules imports."""
    files = import_closure(*modules).values()
    return {name.partition(".")[0] for file in files for name in _facts(file)[0]} - {PACKAGE}


def importer(package: str, *modules: str) -> Path:
    """The first file of the modules' closure that imports the package."""
    files = import_closure(*modules).values()
    return next(f for f in files for name in _facts(f)[0] if name.partition(".")[0] == package)


def closure_hash(*modules: str) -> str:
    """SHA-256 over the names of the import closure's modules and what their code means."""
    digest = hashlib.sha256()
    for name, path in import_closure(*modules).items():
        digest.update(name.encode() + b"\0")
        digest.update(_facts(path)[1].encode() + b"\0")
    return digest.hexdigest()


def check_source(path: Path, name: str) -> None:
    """Check, without running it, that a file is Python and binds a name.

    Raises:
        UserError: if not.
    """
    _facts(path)  # refuses what is no Python
    nodes = ast.walk(ast.parse(path.read_bytes()))
    if not any(_bound(node) in (name, "*") for node in nodes):
        raise UserError(f"{path}: {name}: missing; define a function of that name.")


def _bound(node: ast.AST) -> str | None:
    """The name that a definition, import or assignment binds."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return getattr(node, "asname", None) or getattr(node, "name", None)


@cache
def _facts(path: Path) -> tuple[list[str], str]:
    """A file's imports in full, and a hash of what its code means."""
    state = sha256_of(path)  # not its time, which copies and containers may set
    # A relative path, so that a copy of the checkout can use what is known about its files.
    own = str(path.relative_to(SOURCE_ROOT) if path.is_relative_to(SOURCE_ROOT) else path)
    found = MEMORY.fact(own, state)
    if found is None:
        found = _read(path)
        MEMORY.learn(own, state, found)
    return found


def _read(path: Path) -> tuple[list[str], str]:
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
        imports = list(_walk_imports(tree))
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno}: SyntaxError: {error.msg}.") from error
    except ImportError as error:
        raise UserError(f"{path}:{error}.") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [line for line in node.body if not _is_prose(line)]
        elif isinstance(node, ast.JoinedStr):  # Python 3.12.1 adds empty strings
            node.values = [part for part in node.values if getattr(part, "value", None) != ""]
    return imports, hashlib.sha256(_told(tree).encode()).hexdigest()


def _told(part: Any) -> str:
    """A syntax tree as text, without empty fields, of which each version of Python has others."""
    if isinstance(part, list):
        return f"[{', '.join(map(_told, part))}]"
    if not isinstance(part, ast.AST):
        return ascii(part)
    fields = {name: inner for name, inner in ast.iter_fields(part) if inner not in (None, [])}
    inside = map("{}={}".format, fields, map(_told, fields.values()))
    return f"{type(part).__name__}({', '.join(inside)})"


def _is_prose(line: ast.stmt) -> bool:
    """Whether a statement is only a text: a docstring, possibly of the attribute above it."""
    text = line.value if isinstance(line, ast.Expr) else None
    return isinstance(text, ast.Constant) and isinstance(text.value, str)


@cache
def _module_file(module: str) -> Path | None:
    if _IN_THE_SPEC.fullmatch(module):
        return None
    for base in _places(module):
        for file in (base / "__init__.py", base.with_suffix(".py")):
            if file.is_file():
                return file
    return None


def _places(module: str) -> Iterator[Path]:
    """Where a module of this package may be, as a file or a folder, without a suffix."""
    home = f"{PACKAGE}.papers."
    roots = (
        importlib.import_module(home[:-1]).__path__ if module.startswith(home) else [SOURCE_ROOT]
    )
    return (Path(root).joinpath(*module.removeprefix(home).split(".")) for root in roots)


def _is_missing(module: str) -> bool:
    known = _IN_THE_SPEC.fullmatch(module) or _module_file(module)
    return not known and not any(place.is_dir() for place in _places(module))


@cache
def _internal_imports(module: str, file: Path) -> frozenset[str]:
    found = set[str]()
    names = _facts(file)[0]
    own = [home for name, home in _HOMES.items() if f"{PACKAGE}.{name}" in names]
    if PACKAGE in names:  # imported as a whole: any of its names may be used
        own = list(_HOMES.values())
    # Importing a.b.c runs a/__init__ and a.b/__init__ first, so those count for the module too.
    for name in [module, *names, *(f"{PACKAGE}.{home}" for home in own)]:
        parts = name.split(".")
        if parts[0] != PACKAGE:
            continue
        mine, others = (re.match(rf"{PACKAGE}\.papers\.(\w+)", place) for place in (module, name))
        if mine and others and mine[1] != others[1]:
            hint = f"use a module of {mine[1]}"
            raise UserError(f"{file}: imports {name}, which is of another paper; {hint}.")
        prefixes = [".".join(parts[: i + 1]) for i in range(len(parts))]
        missing = next(filter(_is_missing, prefixes[:-1]), None)
        if missing:
            raise UserError(f"{file}: imports {name}, but there is no module {missing}.")
        # The last part of `from module import name` may be an attribute rather than a module.
        found.update(prefix for prefix in prefixes if _module_file(prefix) is not None)
    return frozenset(found)


def _walk_imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        if node.level:
            raise ImportError(f"{node.lineno}: a relative import; write the module's full name")
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.If) and ast.unparse(node.test) in _ONLY_TYPES:
        for child in node.orelse:
            yield from _walk_imports(child)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _walk_imports(child)
