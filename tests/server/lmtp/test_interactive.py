"""`underglass lmtp`, as a process: from a pipe, at a terminal, and with nothing to connect to."""

import os
import pty
import subprocess
import sys
from typing import Any

import pytest

from engine.events.vocabulary import RequestArrived, RequestFinished
from server.api.lmtp.interactive import PARAMETERS, RETRY_HINT, LineError, parse_line
from tests.facts import assert_names
from tests.server.harness import Serve, trace, watch

COMMAND = [sys.executable, "-m", "server.cli", "lmtp"]


def pipe(url: str, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "--url", url, *options]
    return subprocess.run(command, input=text, text=True, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("text", "prompt", "parameters"),
    [
        ("Once upon a time", "Once upon a time", {}),
        ("max_tokens=3 Once", "Once", {"max_tokens": 3}),
        ("Once upon max_tokens=3", "Once upon", {"max_tokens": 3}),
        ("max_tokens=3 temperature=0.5", "", {"max_tokens": 3, "temperature": 0.5}),
        ('stop="a b" user=Ada Hi', "Hi", {"stop": "a b", "user": "Ada"}),
        ('stop=["a","b"] Hi', "Hi", {"stop": ["a", "b"]}),
        ('max_tokens=3 "x=5 is"', "x=5 is", {"max_tokens": 3}),
        (r'"two\nlines"', "two\nlines", {}),
        ("top_p=null Hi", "Hi", {"top_p": None}),
        ("a = b", "a = b", {}),
        ("", "", {}),
    ],
)
def test_words_with_a_name_and_a_value_are_parameters(
    text: str, prompt: str, parameters: dict[str, Any]
) -> None:
    line = parse_line(text)
    assert (line.prompt, line.parameters) == (prompt, parameters)


def test_a_name_that_is_no_parameter_is_refused_with_the_way_out() -> None:
    with pytest.raises(LineError) as refused:
        parse_line("temprature=1 Once")
    assert_names(str(refused.value), "temprature", *PARAMETERS)
    assert parse_line('"temprature=1 Once"').prompt == "temprature=1 Once"


def test_from_a_pipe_each_line_is_answered_in_order(url: str) -> None:
    done = pipe(url, "max_tokens=3 one\nmax_tokens=5\ntwo\n\nwhat?\n", "--label", "Ada")
    assert done.stdout == "abc\nabcde\nabcde\n"
    assert done.returncode == 0
    assert [one.label for one in trace(url).of(RequestArrived)][-3:] == ["Ada"] * 3


def test_the_address_needs_no_scheme_and_a_foreign_one_is_named(url: str) -> None:
    assert pipe(url.removeprefix("http://"), "max_tokens=2 one\n").stdout == "ab\n"
    refused = pipe(url.replace("http://", "ftp://"), "max_tokens=2 one\n")
    assert refused.returncode == 2
    assert_names(refused.stderr, "underglass:", url.replace("http://", "ftp://"))
    assert "wsftp" not in refused.stderr


def test_buffers_are_kept_gone_on_after_and_released(url: str) -> None:
    lines = (
        "max_tokens=2 keep=tale one\nmax_tokens=1 from=tale two\nrelease=tale\nfrom=tale three\n"
    )
    done = pipe(url, lines)
    assert done.stdout == "ab\na\n\n"
    assert len(done.stderr.splitlines()) == 1
    assert_names(done.stderr, "underglass:", "from", "tale")
    assert done.returncode == 1
    _bos, *prompt = trace(url).of(RequestArrived)[-1].prompt
    assert bytes(prompt) == b"oneabtwo"  # and no second beginning of sequence


def test_an_error_is_one_line_and_the_next_prompt_is_answered(url: str) -> None:
    done = pipe(url, "max_tokens=0 one\nfoo=1 two\nuser=fail-after-1 three\nmax_tokens=1 four\n")
    errors = done.stderr.splitlines()
    assert [line.split(":")[0] for line in errors] == ["underglass"] * 3
    assert_names(errors[0], "max_tokens")
    assert_names(errors[1], "foo")
    assert [error.endswith(RETRY_HINT) for error in errors] == [False, False, True]
    assert done.stdout.splitlines()[-1] == "a"
    assert done.returncode == 1


def test_without_a_server_it_says_so() -> None:
    done = pipe("ws://127.0.0.1:9", "hello\n")
    assert done.returncode == 2
    assert_names(done.stderr, "underglass:", "ws://127.0.0.1:9")
    assert len(done.stderr.splitlines()) == 1


def test_without_the_key_it_says_so(serve: Serve) -> None:
    url = serve(server={"api_key": "secret"}).url
    assert_names(pipe(url, "hello\n").stderr, 401)
    assert pipe(url, "max_tokens=1 hello\n", "--api-key", "secret").stdout == "a\n"


def test_ctrl_c_ends_the_answer_and_not_the_client(serve: Serve) -> None:
    url = serve(engine={"max_kv_tokens": 1 << 20}).url
    ours, theirs = pty.openpty()
    command = [*COMMAND, "--url", url]
    client = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, process_group=0)
    os.close(theirs)
    screen = b""

    def until(wanted: bytes) -> None:
        nonlocal screen
        while wanted not in screen:
            screen += os.read(ours, 65536)
        screen = screen.partition(wanted)[2]

    try:
        with watch(url) as feed:
            until(b"> ")
            os.write(ours, b"max_tokens=500000 hello\n")
            until(b"abcdefghij")
            client.send_signal(2)
            assert feed.until_kind(RequestFinished).reason == "abort"
            until(b"> ")
            os.write(ours, b"max_tokens=3 again\n")
            until(b"abc\r\n")
            until(b"> ")
            os.write(ours, b"\x04")  # Ctrl-D
            assert client.wait(60) == 0
    finally:
        client.kill()
        client.wait()
        os.close(ours)
