"""A client that leaves or reads nothing costs no other client anything; other sites are rejected."""

import json
import socket
import subprocess

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from engine.core.log.vocabulary import RequestArrived, RequestFinished
from server.api.lmtp.interactive import PARAMETERS, RETRY_HINT, LineError, parse_line
from tests.facts import assert_names
from tests.server.console import run
from tests.server.harness import TIMEOUT, Feed, get, post, trace, watch
from tests.server.lmtp.wire import Wire, letters


@pytest.mark.parametrize("how", ["close", "drop"])
@pytest.mark.parametrize("steps", [0, 1, 5], ids=["waiting", "prefilling", "active"])
def test_leaving_frees_every_stream_of_the_connection(serve, steps, how):
    url = serve(paused=True, engine={"token_budget": 64, "block_size": 4}).url
    with Feed(url) as feed, Wire(url) as wire:
        feed.keyframe()
        for stream in range(3):
            wire.generate(stream, [120 + stream] * 50, max_tokens=50)
        feed.until_kind(RequestArrived, 3)
        if steps:
            post(url, "/engine/step", {"steps": steps})
        before = get(url, "/health")["step"]
        wire.socket.close() if how == "close" else wire.socket.socket.close()
        for _ in range(3):
            assert feed.until_kind(RequestFinished).reason == "abort"
        health = get(url, "/health")
        assert health["step"] == before  # it took no step to notice
        assert health["blocks"]["free"] + health["blocks"]["cached"] == health["blocks"]["total"]


def test_a_client_that_does_not_read_is_disconnected_without_delaying_others(serve):
    """Its streams end; those of others, and the next connection, do not notice."""
    url = serve(
        engine={"max_kv_tokens": 1 << 16, "max_batch_size": 16}, server={"buffer_bytes": 1 << 18}
    ).url
    # What the kernel holds for it is bounded, and it takes in one frame and no more.
    host, _, port = url.removeprefix("http://").partition(":")
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.connect((host, int(port)))
    with Wire(url, sock=narrow, max_queue=1) as idle, Wire(url) as wire:
        for stream in range(8):
            idle.generate(stream, [120 + stream], max_tokens=4000)
        wire.generate(1, [97], max_tokens=30)
        assert len(wire.tokens(1)) == 30
        with watch(url) as feed:
            while feed.state.requests:
                next(iter(feed))
        reasons = [one.reason for one in trace(url).of(RequestFinished)]
    assert reasons.count("abort") >= 4
    assert reasons.count("length") >= 1


def test_a_stopping_server_lets_streams_finish_and_takes_no_more(serve):
    server = serve(paused=True, server={"keep_alive": 1000.0})  # viewers are told without delay
    with Wire(server.url) as wire, Feed(server.url) as feed:
        wire.queued(1, [120], max_tokens=5)
        server.process.terminate()
        feed.until_not_ready()
        assert letters(wire.tokens(1)) == "abcde"
        with pytest.raises(ConnectionClosed):
            wire.receive()
    assert server.process.wait(TIMEOUT) == 0


@pytest.mark.parametrize("path", ["/", "/lmtp"])
def test_connections_without_the_configured_key_get_401(serve, path):
    url = serve(server={"api_key": "secret"}).url
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
        with pytest.raises(InvalidStatus) as refused, Wire(url, path, additional_headers=headers):
            pass
        assert refused.value.response.status_code == 401
        error = json.loads(refused.value.response.body)["error"]
        assert error["code"] == "invalid_api_key"
    with Wire(url, path, additional_headers={"Authorization": "Bearer secret"}) as wire:
        assert wire.say(1, [120], max_tokens=1) == "a"


def test_a_key_may_be_part_of_the_address(serve):
    """LMQL's client takes only a URL like http://user:KEY@host, which becomes Basic authentication."""
    url = serve(server={"api_key": "se:cret"}).url
    with Wire(url.replace("://", "://any:se%3Acret@")) as wire:
        assert wire.say(1, [120], max_tokens=1) == "a"
    with pytest.raises(InvalidStatus), Wire(url.replace("://", "://se:cret@")):
        pass


@pytest.mark.parametrize(
    ("frame", "code"), [("GENERATE " + "x" * 1_500_000, 1009), (b"GENERATE {}", 1003)]
)
def test_a_frame_that_is_too_large_or_binary_ends_its_connection_only(url, frame, code):
    with Wire(url) as wire, Wire(url) as other:
        wire.socket.send(frame)
        with pytest.raises(ConnectionClosed) as closed:
            wire.receive()
        assert closed.value.rcvd.code == code
        assert other.say(1, [120], max_tokens=1) == "a"


# `underglass lmtp`, as a process: from a pipe, at a terminal, and with nothing to connect to


def pipe(url: str, text: str, *options: str) -> "subprocess.CompletedProcess[str]":
    return run("lmtp", "--url", url, *options, text=text)


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
def test_words_with_a_name_and_a_value_are_parameters(text, prompt, parameters):
    line = parse_line(text)
    assert (line.prompt, line.parameters) == (prompt, parameters)


def test_a_name_that_is_no_parameter_is_refused_with_the_way_out():
    with pytest.raises(LineError) as refused:
        parse_line("temprature=1 Once")
    assert_names(str(refused.value), "temprature", *PARAMETERS)
    assert parse_line('"temprature=1 Once"').prompt == "temprature=1 Once"


def test_from_a_pipe_each_line_is_answered_in_order(url):
    done = pipe(url, "max_tokens=3 one\nmax_tokens=5\ntwo\n\nwhat?\n", "--label", "Ada")
    assert done.stdout == "abc\nabcde\nabcde\n"
    assert done.returncode == 0
    assert [one.label for one in trace(url).of(RequestArrived)][-3:] == ["Ada"] * 3


def test_the_address_needs_no_scheme_and_a_foreign_one_is_named(url):
    assert pipe(url.removeprefix("http://"), "max_tokens=2 one\n").stdout == "ab\n"
    refused = pipe(url.replace("http://", "ftp://"), "max_tokens=2 one\n")
    assert refused.returncode == 2
    assert_names(refused.stderr, "underglass:", url.replace("http://", "ftp://"))
    assert "wsftp" not in refused.stderr


def test_buffers_are_kept_gone_on_after_and_released(url):
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


def test_an_error_is_one_line_and_the_next_prompt_is_answered(url):
    done = pipe(url, "max_tokens=0 one\nfoo=1 two\nuser=fail-after-1 three\nmax_tokens=1 four\n")
    errors = done.stderr.splitlines()
    assert [line.split(":")[0] for line in errors] == ["underglass"] * 3
    assert_names(errors[0], "max_tokens")
    assert_names(errors[1], "foo")
    assert [error.endswith(RETRY_HINT) for error in errors] == [False, False, True]
    assert done.stdout.splitlines()[-1] == "a"
    assert done.returncode == 1


def test_without_the_key_it_says_so(serve):
    url = serve(server={"api_key": "secret"}).url
    assert_names(pipe(url, "hello\n").stderr, 401)
    assert pipe(url, "max_tokens=1 hello\n", "--api-key", "secret").stdout == "a\n"
