"""What a kernel is by its name, asked last: patterns of the user, metadata and the launching operator go before.

Only the operation is ever read from a name. The algorithm and protocol in NCCL's names are those of a stub (one kernel
is compiled per operation and dispatches to the one that runs), so they are never stated.
"""

from __future__ import annotations

import re
from functools import lru_cache

from commprof.trace.kernel_rules import COMPUTE_BY_NAME, LOCAL_AND_COMMUNICATION, SUSPICIOUS, NameRule
from commprof.trace.operations import operation_of

_CLONE = re.compile(r"\s*\[clone [^\]]*\]|\.kd$")
_LENGTH = re.compile(r"\d+")
_SUFFIXES = (("_ag", "all_gather"), ("_rs", "reduce_scatter"), ("sum_inplace", "all_reduce"))


@lru_cache(maxsize=65536)
def rule_for(name: str) -> tuple[NameRule, str] | None:
    """The first rule that names the kernel, and the operation (``unknown`` where there is none)."""
    lower = name.strip().lower()
    own = own_name(name).lower()
    for rule in LOCAL_AND_COMMUNICATION:
        match = rule.pattern.search(lower if rule.whole else own)
        if match is not None:
            if rule.kind in ("compute", "copy"):
                return rule, "unknown"
            return rule, rule.operation or _operation_in(own[match.start() :])
    if SUSPICIOUS.search(own):
        return None
    return next(((rule, "unknown") for rule in COMPUTE_BY_NAME if rule.pattern.search(lower)), None)


def own_name(name: str) -> str:
    """The qualified name of a kernel without return type, template arguments and parameters.

    ``void ns::kernel<float, 8>(int*) [clone .kd]`` is ``ns::kernel``; mangled names (Itanium) are read as far as their
    leading identifiers go.
    """
    name = _CLONE.sub("", name.strip())
    if name.startswith("_Z"):
        return _unmangled(name)
    name = name.replace("(anonymous namespace)::", "")
    for inner in (r"<[^<>]*>", r"\([^()]*\)"):
        before = ""
        while before != name:
            before, name = name, re.sub(inner, "", name)
    head = re.split(r"[<(]", name, maxsplit=1)[0].strip()
    return head.rpartition(" ")[2] if head else name


def _unmangled(name: str) -> str:
    """The identifiers at the head of a mangled name: ``_ZN5aiter6kernelIfEEvv`` is ``aiter::kernel``."""
    parts = []
    place = 3 if name.startswith("_ZN") else 2
    while (length := _LENGTH.match(name, place)) is not None:
        end = length.end() + int(length[0])
        part = name[length.end() : end]
        if part != "_GLOBAL__N_1":
            parts.append(part)
        place = end
        if not name.startswith("_ZN"):
            break
    return "::".join(parts) or name


def _operation_in(own: str) -> str:
    """The operation in a kernel's own name."""
    if "userbuffers_" in own:
        if "sendrecv" in own or "alltoall" in own:
            return operation_of(own)
        for word, operation in (("send", "send"), ("recv", "recv"), *_SUFFIXES):
            if re.search(word + r"(?![a-z])", own):
                return operation
        return "unknown"
    return operation_of(own.replace("::", "_"))
