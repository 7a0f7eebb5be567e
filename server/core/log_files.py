"""Opening the files that a server writes logs to: that file and no other.

A log holds what people asked, and often lies where others may write, as in /tmp. So a link that
somebody else has put there is not followed, a pipe that nobody reads is not waited for, and only the
owner may read a new file. Nor do two servers write one log: each would cut off what the other wrote.
"""

import errno
import fcntl
import os
import stat
from io import FileIO
from pathlib import Path

# Both what an event log and a request log begin with.
_OURS = (b'{"type":"run_started"', b'{"type":"keyframe"', b'{"time": ')


def open_log(path: Path, *, append: bool = False) -> FileIO:
    """A file to write a log to, unbuffered; an old log is replaced, or appended to.

    Raises OSError for what is no plain file, and for a file that is no log: a mistyped path must not
    cost anybody a file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | (os.O_APPEND if append else 0), 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link: name the file itself") from None
        raise
    file = FileIO(descriptor, "rb+")
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no plain file")
        if status.st_size and not os.pread(descriptor, 64, 0).startswith(_OURS):
            raise OSError(errno.EEXIST, "exists and is no log: choose another name, or remove it")
        if not append:
            _claim(descriptor)
            os.ftruncate(descriptor, 0)
    except OSError:
        file.close()
        raise
    return file


def _claim(descriptor: int) -> None:
    """Keep a file from other servers until it is closed, at the latest when the process ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(errno.EBUSY, "another server is writing it: choose another name") from None
