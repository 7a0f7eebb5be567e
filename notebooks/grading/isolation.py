"""Limit what a process can use and reach.

On Linux, namespaces hide the network and all other processes, and make all files read-only except a
scratch folder in memory. They need no privileges, but an administrator can switch them off. See
namespaces(7) and mount_setattr(2). On other systems only the limits of setrlimit(2) remain.
"""

import ctypes
import os
import resource
import select
import signal
import sys
from functools import cache
from pathlib import Path
from typing import NoReturn

import psutil

MOST_PROCESSES = 64  # of a notebook, at the same time
SCRATCH_BYTES = 64 << 20
TOO_MANY_PROCESSES = 250  # the exit code; 128 and more are signals, as in a shell

_NEW_USER, _NEW_NET, _NEW_PID = 0x1000_0000, 0x4000_0000, 0x2000_0000
_NEW_MOUNTS, _NEW_IPC = 0x0002_0000, 0x0800_0000
_MOUNT_SETATTR, _THIS_FOLDER, _RECURSIVE, _READ_ONLY, _PRIVATE = 442, -100, 0x8000, 1, 1 << 18
_BIND = 4096
_PARENT_DEATH_SIGNAL, _SET_DUMPABLE, _NO_NEW_PRIVILEGES = 1, 4, 38  # of prctl(2)
_CAPABILITY_VERSION_3 = 0x2008_0522
_PROC = Path("/proc")
# Sockets are no network, and a read-only file system does not close them.
_SOCKETS = ("/run/user", "/run/dbus", "/run/systemd", "/tmp/.X11-unix", "/run/docker.sock")


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def isolate(scratch: str) -> None:
    """Give this process namespaces of its own. Call `enter` next.

    Raises OSError where the system does not offer that. The process is of no use then.
    """
    if sys.platform != "linux":
        raise OSError("this needs Linux's namespaces")
    user, group = os.getuid(), os.getgid()
    _do("unshare", _NEW_USER | _NEW_NET | _NEW_PID | _NEW_MOUNTS | _NEW_IPC)
    for file, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        Path(f"/proc/self/{file}").write_text(text)
    for path in _SOCKETS:
        if Path(path).is_dir():
            _do("mount", b"tmpfs", path.encode(), b"tmpfs", 0, None)
        elif Path(path).exists():
            _do("mount", b"/dev/null", path.encode(), None, _BIND, None)
    read_only = _MountAttributes(set=_READ_ONLY, propagation=_PRIVATE)
    size = ctypes.sizeof(read_only)
    _do("syscall", _MOUNT_SETATTR, _THIS_FOLDER, b"/", _RECURSIVE, ctypes.byref(read_only), size)
    options = f"size={SCRATCH_BYTES},mode=700".encode()
    _do("mount", b"tmpfs", os.fsencode(scratch), b"tmpfs", 0, options)


def enter() -> None:
    """Go on as the first process of the namespaces. It ends with this process, and this one with it."""
    child = os.fork()
    if child:
        os._exit(_exit_code(os.waitpid(child, 0)[1]))
    _do("prctl", _PARENT_DEATH_SIGNAL, signal.SIGKILL)
    _do("mount", b"proc", os.fsencode(_PROC), b"proc", _READ_ONLY, None)  # of this namespace
    # The process that makes a namespace has all capabilities in it: it could make files writable.
    _do("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _do("capset", (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)())


def supervise(lifeline: int) -> None:
    """Go on in a child; this process watches it, and is out of its reach in a namespace.

    It ends the child if the file descriptor `lifeline` is closed at its other end, or if there are too
    many processes.
    """
    child = os.fork()
    if child == 0:
        return
    if os.getpid() == 1:
        _do("prctl", _SET_DUMPABLE, 0, 0, 0, 0)  # the child cannot trace it
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            os._exit(_exit_code(status))
        if _processes() > MOST_PROCESSES:
            _end(child, TOO_MANY_PROCESSES)
        if select.select([lifeline], [], [], 0.02)[0]:
            _end(child, 1)


def limit(cpu_seconds: int, memory: int, *, isolated: bool) -> None:
    """Limit this process and its children from here on. `memory` is in bytes, beyond what is in use."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(used.ru_utime + used.ru_stime) + cpu_seconds
    _set(resource.RLIMIT_CPU, cpu, cpu + 2)  # SIGXCPU, then SIGKILL
    _set(resource.RLIMIT_FSIZE, SCRATCH_BYTES, SCRATCH_BYTES)
    _set(resource.RLIMIT_CORE, 0, 0)
    if sys.platform == "linux":  # macOS has this limit and does not keep to it
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        address_space = pages * resource.getpagesize() + memory
        _set(resource.RLIMIT_AS, address_space, address_space)
    if not isolated:  # otherwise `supervise` counts
        mine = sum(one.info["uids"].real == os.getuid() for one in psutil.process_iter(["uids"]))
        most = mine + MOST_PROCESSES  # the system counts all processes of the user
        _set(resource.RLIMIT_NPROC, most, most)


def _set(kind: int, soft: int, hard: int) -> None:
    allowed = resource.getrlimit(kind)[1]
    if allowed != resource.RLIM_INFINITY:
        soft, hard = min(soft, allowed), min(hard, allowed)
    resource.setrlimit(kind, (soft, hard))


def _processes() -> int:
    """Return how many processes the namespace has; 0 outside one, where RLIMIT_NPROC must do."""
    return sum(one.name.isdigit() for one in _PROC.iterdir()) if os.getpid() == 1 else 0


def _end(child: int, code: int) -> NoReturn:
    os.kill(child, signal.SIGKILL)
    os._exit(code)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _do(function: str, *arguments: object) -> None:
    """Call a function of the C library that returns 0 or sets errno."""
    if getattr(_libc(), function)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")
