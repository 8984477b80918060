"""What build_backend/ does to libraries, so that a wheel shares nothing with the rest of a process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from judged_times import LONG_FORMS

import slotwise.programs

_BACKEND = Path(__file__).resolve().parents[1] / "build_backend"
sys.path.insert(0, str(_BACKEND))

from bundle import HOST_LIBRARIES, BundleError, bundle, licences  # noqa: E402
from elf import ElfFile  # noqa: E402
from rename import new_name  # noqa: E402

_GLIBC = (99, 0)

# GCC makes both variables STB_GNU_UNIQUE: one for the process, whatever libraries define them.
_COUNTER = """
template <class T> struct Counter { static T value; };
template <class T> T Counter<T>::value = 0;
inline int& Count() { static int count = 0; return count; }
"""
_COMMON = _COUNTER + "int CommonCount() { return ++Counter<int>::value + 10 * ++Count(); }"
_USER = "#include <cstdlib>" + _COUNTER + """
extern "C" const char* Home() { return std::getenv("HOME"); }
int CommonCount();
extern "C" int Use() { ++Counter<int>::value; ++Count(); return CommonCount(); }
"""
_LOAD = "import ctypes, sys; print([ctypes.CDLL(path).Use() for path in sys.argv[1:]])"


def compile_library(folder: Path, name: str, source: str, *flags: str) -> Path:
    (folder / f"{name}.cc").write_text(source)
    path = folder / f"lib{name}.so"
    command = ["c++", "-shared", "-fPIC", "-o", str(path), str(folder / f"{name}.cc")]
    subprocess.run([*command, f"-Wl,-soname,lib{name}.so", *flags], check=True)
    return path


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library that shares variables with another one, which it is linked to."""
    folder = tmp_path / "built"
    folder.mkdir()
    compile_library(folder, "common", _COMMON)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))  # ldd's way to it
    return compile_library(folder, "user", _USER, f"-L{folder}", "-lcommon")


def uses(*libraries: Path) -> str:
    command = [sys.executable, "-c", _LOAD, *map(str, libraries)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_bundled_library_shares_no_variable_with_the_original(user: Path, tmp_path: Path) -> None:
    (found,) = bundle([user], tmp_path / "bundled", _GLIBC)
    assert found == user.with_name("libcommon.so")
    bundled = tmp_path / "bundled" / user.name
    # Each pair counts for itself, to 2, and both of a pair count the same.
    assert uses(user, bundled) == uses(bundled, user) == "[22, 22]"


def test_a_mere_copy_would_share_variables(user: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.so"
    shutil.copy(user, copy)
    assert uses(user, copy) == "[22, 44]"


def test_bundled_libraries_have_names_of_their_own(user: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bundled"
    bundle([user], folder, _GLIBC)
    (common,) = folder.glob("libcommon*")
    assert re.fullmatch(r"libcommon-slotwise-[0-9a-f]{8}\.so", common.name)
    assert ElfFile(common).soname() == common.name
    assert common.name in ElfFile(folder / user.name).needed()
    assert ElfFile(folder / user.name).runpath() == "$ORIGIN"
    assert not any(symbol.unique for path in folder.iterdir() for symbol in ElfFile(path).symbols())
    assert any(symbol.unique for symbol in ElfFile(user).symbols())


def test_a_missing_library_is_named(user: Path, tmp_path: Path) -> None:
    user.with_name("libcommon.so").unlink()
    with pytest.raises(BundleError, match="libuser.so needs libcommon.so, which is not on this machine"):
        bundle([user], tmp_path / "bundled", _GLIBC)


def test_a_library_for_newer_hosts_is_named(user: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"needs GLIBC_2\.[0-9.]+, newer than"):
        bundle([user], tmp_path / "bundled", (2, 1))


def test_a_library_of_no_package_has_no_licence(user: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no Debian package has .*libuser.so"):
        licences([user], tmp_path / "licences")


def gnu_hash(name: str) -> int:
    """The loader's hash of a name, from its 5381 on."""
    value = 5381
    for character in name.encode():
        value = (value * 33 + character) % 2**32
    return value


_NAMES = ["grpc_init", "_ZN6google8protobuf5ArenaD1Ev", "RAND_add", "_upb_Map_New", "INT32_it", "_Z1fv"]


@pytest.mark.parametrize("name", _NAMES)
def test_a_new_name_has_the_old_ones_length_and_hash(name: str) -> None:
    new = new_name(name, {name})
    assert new != name and len(new) == len(name) and new.isprintable()
    assert gnu_hash(new) == gnu_hash(name)
    assert new_name(name, set()) == name


def test_a_name_that_ends_with_another_changes_as_that_one_does() -> None:
    assert new_name("_ZN6google8protobuf1fEv", {"_ZN6google8protobuf1fEv"}) == "_ZN6hNogle8protobuf1fEv"
    both = {"CONF_free", "NCONF_free"}
    assert new_name("NCONF_free", both) == "N" + new_name("CONF_free", both)
    assert new_name("NCONF_free", {"NCONF_free"})[1:] != new_name("CONF_free", both)
    assert new_name("xCONF_free", both) == "x" + new_name("CONF_free", both)  # wherever it is from


# The linker stores the first name within the others; the C library's within the last.
_ENDINGS = """
#include <cstdlib>
extern "C" int it() { return 1; }
extern "C" int a_it() { return it() + 10; }
extern "C" int aa_it() { return a_it() + 100; }
extern "C" void my_free(void* memory) { std::free(memory); }
"""
_ENDINGS_USER = """
extern "C" int it(); extern "C" int a_it(); extern "C" int aa_it(); extern "C" void my_free(void*);
extern "C" int Use() { my_free(nullptr); return it() + a_it() + aa_it(); }
"""


def test_names_that_share_their_ends_are_renamed_or_kept_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    compile_library(tmp_path, "endings", _ENDINGS, "-Wl,-O2")
    user = compile_library(tmp_path, "user", _ENDINGS_USER, f"-L{tmp_path}", "-lendings")
    bundle([user], tmp_path / "bundled", _GLIBC)
    assert uses(tmp_path / "bundled/libuser.so") == "[123]"
    (endings,) = (tmp_path / "bundled").glob("libendings*")
    names = {symbol.name for symbol in ElfFile(endings).symbols()}
    assert "free" in names and not {"it", "a_it", "aa_it", "my_free"} & names


def test_nothing_but_what_the_host_has_too_keeps_its_name(bundled_core: Path) -> None:
    command = ["ldd", slotwise.programs.find_core()]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    originals = [Path(path) for path in re.findall(r"=> (/\S+)", listed.stdout)]
    host = [path for path in originals if path.name in HOST_LIBRARIES]
    before = {s.name for path in {*originals} - {*host} for s in ElfFile(path).symbols() if s.defined}
    kept = before & {s.name for path in bundled_core.parent.iterdir() for s in ElfFile(path).symbols()}
    kept -= {s.name for path in host for s in ElfFile(path).symbols()}
    assert len(before) > 20_000
    # A version of symbols is a symbol too.
    assert {name for name in kept if not name.startswith(("OPENSSL_", "__"))} == set()


@pytest.fixture(scope="module")
def bundled_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client's core as a wheel has it."""
    folder = tmp_path_factory.mktemp("bundled")
    libraries = bundle([slotwise.programs.find_core()], folder, _GLIBC)
    assert any(path.name.startswith("libgrpc.so") for path in libraries)
    return folder / "libslotwise.so"


_TRAIN = """
import numpy as np, slotwise
with slotwise.serve() as server, slotwise.connect(server.address) as ps:
    ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=0.5))
    before = ps.lookup("ads", [7, 9])
    ps.push("ads", [7, 9], None, np.ones_like(before))
    assert np.allclose(ps.lookup("ads", [7, 9]), before - 0.5)
"""
_OTHERS = """
import grpc
from google.protobuf import descriptor_pb2, struct_pb2
import torch
struct_pb2.Struct.FromString(struct_pb2.Struct(fields={}).SerializeToString())
with grpc.insecure_channel("127.0.0.1:1") as channel:
    try:
        channel.unary_unary("/a/b")(b"", timeout=5)
        raise AssertionError
    except grpc.RpcError:
        pass
"""


# As TensorFlow opens its own libraries: the loader then looks at them before it looks at ours.
_FOR_ALL = "import os, sys; sys.setdlopenflags(os.RTLD_GLOBAL | os.RTLD_NOW)\n"


@pytest.mark.parametrize(
    "programs",
    [(_TRAIN, _OTHERS), (_FOR_ALL, _OTHERS, _TRAIN), *([(_OTHERS, _TRAIN)] if LONG_FORMS else [])],
)
def test_the_core_shares_no_symbol_with_grpcio_protobuf_and_torch(
    bundled_core: Path, tmp_path: Path, programs: tuple[str, ...]
) -> None:
    environment = {
        "SLOTWISE_CORE": str(bundled_core),
        "PYTHONPATH": str(_BACKEND.parent),
        "LD_DEBUG": "bindings",
        "LD_DEBUG_OUTPUT": str(tmp_path / "bindings"),
        "LD_BIND_NOW": "1",
    }
    process = subprocess.Popen([sys.executable, "-c", "".join(programs)], env=os.environ | environment)
    assert process.wait(timeout=300) == 0
    log = (tmp_path / f"bindings.{process.pid}").read_text()
    bindings = set(re.findall(r"binding file (\S+) \[0\] to (\S+) \[0\]: \w+ symbol `(\S+)'", log))
    ours = str(bundled_core.parent)
    system = re.compile(r"/(ld-linux[-\w]*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|z))\.so\.\d+$")

    # An interpreter that is linked to fixed addresses stands in for some of the C library's symbols.
    (libc,) = {to for _, to, _ in bindings if to.endswith("/libc.so.6")}
    of_libc = {symbol.name for symbol in ElfFile(Path(libc)).symbols() if symbol.defined}
    bindings = {b for b in bindings if not (b[1] == sys.executable and b[2] in of_libc)}

    inside = [b for b in bindings if b[0].startswith(ours) and b[1].startswith(ours)]
    outwards = [b for b in bindings if b[0].startswith(ours) and not b[1].startswith(ours)]
    inwards = [b for b in bindings if not b[0].startswith(ours) and b[1].startswith(ours)]
    assert len(inside) > 10_000 and any("grpc" in other for other, _, _ in set(bindings) - set(inside))
    assert [b for b in outwards if not system.search(b[1])] == []
    # ctypes asks for the core's own functions by dlsym, which the loader logs as the interpreter's.
    assert [b for b in inwards if not b[2].startswith("slotwise_")] == []
