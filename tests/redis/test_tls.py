#!/usr/bin/python3
"""rediss://: the same over TLS, whom it believes, and what it says of peers that it does not."""
import base64
import contextlib
import json
import os
import socket
import ssl
import sys
import threading

from certificates import authority, certificate
from impeltest import (SLOWNESS, SOURCE, accepts, check, contains, equal, free_port, impel, impel_argv, impel_ok,
                       json_lines, main, now, start, start_redis, test, wait_for)

sys.path.insert(0, str(SOURCE / "tests" / "chaos"))
from fleet import Fleet  # pylint: disable=wrong-import-position


class Secure:
    """A redis-server with a plain port and one with TLS. `args`: more of its options."""

    def __init__(self, folder, *args, clients="no", names="DNS:localhost,IP:127.0.0.1", days=2):
        self.folder, self.port = folder, free_port()
        self.ca = authority(folder, "ca")
        self.cert, self.key = certificate(folder, "server", names=names, days=days)
        self.args = ["--tls-port", self.port, "--tls-cert-file", self.cert, "--tls-key-file", self.key,
                     "--tls-ca-cert-file", self.ca, "--tls-auth-clients", clients, *args]
        self.plain_port = None
        self.again()
        self.url = self.at("localhost")

    def again(self):
        self.process, self.plain_port = start_redis(self.folder, *self.args, port=self.plain_port)
        wait_for(lambda: accepts(self.port), what="the port with TLS")

    def at(self, host, scheme="rediss", more=""):
        return "%s://%s:%d?tls_ca=%s%s" % (scheme, host, self.port, self.ca, more)


def refused(store, *words, args=()):
    """The command fails at once, with these words."""
    done = impel("call", *args, "PING", store=store)
    equal(done.code, 1, done.out + done.err)
    for word in words:
        contains(done.err, word)
    equal(done.err.count("\n"), 1, done.err)
    return done.err


@test
def entries_go_in_and_come_out(tmp):
    server = Secure(tmp)
    lines = [{"n": str(i), "bytes": {"base64": "/wA="}} for i in range(2500)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    equal(impel_ok("add", "--stream", "s", "--jsonl", store=server.url, stdin=text), "2500\n")
    got = [e["fields"] for e in json_lines(impel_ok("read", "--stream", "s", store=server.at("127.0.0.1", "valkeys")))]
    equal(got == lines, True, "the entries differ")


@test
def large_values_go_both_ways(tmp):
    """Records carry 16 KiB; here is a value of 64 MiB, and a socket that takes a part of it at a time."""
    server = Secure(tmp)
    big = base64.b64encode(os.urandom(48 << 20)).decode()
    equal(impel_ok("add", "--stream", "s", "--jsonl", store=server.url, stdin='{"v":"%s"}\n' % big, deadline_s=120), "1\n")
    got = json_lines(impel_ok("read", "--stream", "s", store=server.url, deadline_s=120))
    equal(got[0]["fields"]["v"] == big, True, "the value differs")


@test
def both_versions_are_spoken(tmp):
    for version in "TLSv1.2", "TLSv1.3":
        folder = tmp / version
        folder.mkdir()
        server = Secure(folder, "--tls-protocols", version, clients="yes")
        more = "&tls_cert=%s&tls_key=%s" % (server.cert, server.key)
        equal(impel_ok("call", "PING", store=server.at("localhost", more=more)), "PONG\n")
        refused(server.url, "want", " a certificate of this client: --tls-cert and --tls-key")
        authority(folder, "strangers")
        cert, key = certificate(folder, "stranger", "strangers")
        refused(server.url, "unknown ca", "does not accept this client's certificate",
                args=["--tls-cert", cert, "--tls-key", key])


@test
def who_is_not_believed_is_named_with_the_way_out(tmp):
    server = Secure(tmp)
    other = authority(tmp, "other")
    place = "127.0.0.1:%d" % server.port
    refused("rediss://" + place, "redis at " + place, "the certificate is not accepted: self-signed certificate in",
            "--tls-ca")
    refused("rediss://%s?tls_ca=%s" % (place, other), "the certificate is not accepted:", "--tls-ca")
    refused(server.at("127.0.0.1", more="&tls_name=example.org"), "hostname mismatch", "--tls-name")
    refused(server.at("127.0.0.1", more="&tls_name=127.0.0.9"), "IP address mismatch", "--tls-name")
    refused(server.at("127.0.0.1"), "hostname mismatch", args=["--tls-name", "example.org"])
    equal(impel_ok("call", "--tls-ca", server.ca, "--tls-name", "localhost", "PING", store="rediss://" + place), "PONG\n")
    # Nobody who is not believed is ever told the password.
    done = impel("call", "PING", store="rediss://:s3cret@" + place)
    equal((done.code, "s3cret" in done.err), (1, False), done.err)


@test
def a_certificate_that_is_over_is_told(tmp):
    refused(Secure(tmp, days=-1).url, "certificate has expired", "the server needs a new one")


@test
def a_name_stands_for_no_address_and_a_star_for_a_label(tmp):
    server = Secure(tmp, names="DNS:*.example.org")
    refused(server.url, "hostname mismatch")
    for name, good in ("a.example.org", True), ("a.b.example.org", False), ("example.org", False), ("::1", False):
        done = impel("call", "--tls-name", name, "PING", store=server.url)
        equal(done.code == 0, good, name + done.err)


@test
def plain_and_tls_that_meet_are_told(tmp):
    server = Secure(tmp)
    refused("redis://127.0.0.1:%d" % server.port, "without a word: if it speaks TLS, rediss://")
    refused("rediss://127.0.0.1:%d" % start_scripted(b"-ERR unknown command\r\n"), "wrong version number",
            "the server does not speak TLS on this port")
    serve = start(impel_argv("serve", "--listen", "127.0.0.1:%d" % (port := free_port()), "--tls-cert", server.cert,
                             "--tls-key", server.key, store=tmp / "db"), tmp)
    serve.wait_for_output("with TLS")
    refused("redis://127.0.0.1:%d" % port, "without a word: if it speaks TLS, rediss://")
    refused("redis://127.0.0.1:%d" % start_scripted(b"\x15\x03\x01\0\x02\x02\x46"), "this is no Redis server",
            "it speaks TLS: rediss://")


def start_scripted(answer, hears=4096):
    """A peer that says this to whoever comes, or nothing; returns its port. What it does not hear breaks the
    connection off when it closes it."""
    listener = socket.create_server(("127.0.0.1", 0))
    kept = []

    def life():
        while True:
            connection = listener.accept()[0]
            kept.append(connection)
            with contextlib.suppress(OSError):
                connection.recv(hears)
                if answer is not None:
                    connection.sendall(answer)
                    connection.close()
    threading.Thread(target=life, daemon=True).start()
    return listener.getsockname()[1]


@test
def a_handshake_has_the_time_to_connect_in_and_no_more(tmp):
    began = now()
    refused("rediss://127.0.0.1:%d" % start_scripted(None), "no TLS handshake within 400 ms",
            "does the server speak TLS on this port?", args=["--connect-timeout", "400ms"])
    check(now() - began < 4 * SLOWNESS, "it took %g s" % (now() - began))
    for hears in 4096, 1:
        refused("rediss://127.0.0.1:%d" % start_scripted(b"", hears), "during the TLS handshake")


@test
def files_that_cannot_be_used_are_misuse(tmp):
    ca = authority(tmp, "ca")
    cert, key = certificate(tmp, "client")
    other = certificate(tmp, "other")[1]
    secure, plain = "rediss://127.0.0.1:1", "redis://127.0.0.1:1"
    for store, args, words in [
            (secure, ["--tls-ca", tmp / "none"], "--tls-ca %s: No such file" % (tmp / "none")),
            (secure, ["--tls-ca", key], "it has no certificate in PEM form"),
            (secure, ["--tls-cert", cert], "--tls-key is missing"),
            (secure, ["--tls-cert", cert, "--tls-key", other], "it is not the key of the certificate"),
            (plain, ["--tls-ca", ca], "--tls-ca is for a store over TLS"),
            (plain + "?tls_ca=%s" % ca, [], "are for rediss://"),
            (secure + "?tls_ca=", [], "no value")]:
        for words_of in ["call", *args, "PING"], ["run", *args, "--stream", "s", "--group", "g", "--", "true"]:
            done = impel(*words_of, store=store)
            equal(done.code, 2, done.err)
            contains(done.err, words)


class Peer(threading.Thread):
    """A server of TLS that hears the greeting and plays it by ear; remembers which name was asked for."""

    def __init__(self, cert, key, end):
        super().__init__(daemon=True)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(cert, key)
        self.context.sni_callback = lambda sock, name, context: self.names.append(name)
        self.names, self.ends, self.end_of = [], 0, end
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.start()

    def run(self):
        while True:
            with contextlib.suppress(OSError), self.socket.accept()[0] as raw:
                with self.context.wrap_socket(raw, server_side=True, suppress_ragged_eofs=False) as tls:
                    tls.recv(10)
                    self.end_of(tls)
                    self.ends += 1


@test
def names_are_asked_for_and_addresses_are_not(tmp):
    ca = authority(tmp, "ca")
    peer = Peer(*certificate(tmp, "server"), end=lambda tls: tls.unwrap())
    for host, args, name in [("localhost", [], "localhost"), ("127.0.0.1", [], None),
                             ("127.0.0.1", ["--tls-name", "localhost"], "localhost"),
                             ("127.0.0.1", ["--tls-name", "localhost."], "localhost")]:
        refused("rediss://%s:%d" % (host, peer.port), "the server closed the connection", args=["--tls-ca", ca, *args])
        equal(peer.names[-1], name)


@test
def an_end_with_and_without_a_goodbye_is_an_end(tmp):
    """Half an answer is none, however the connection ended."""
    ca = authority(tmp, "ca")
    files = certificate(tmp, "server")

    def half(goodbye):
        def end(tls):
            tls.sendall(b"+PONG\r\n+O")
            if goodbye:
                with contextlib.suppress(OSError):
                    tls.unwrap()
        return end
    for goodbye in True, False:
        peer = Peer(*files, end=half(goodbye))
        text = refused("rediss://localhost:%d?tls_ca=%s" % (peer.port, ca))
        check("closed the connection" in text or "connection reset" in text, text)
        worker = start(impel_argv("run", "--stream", "s", "--group", "g", "--", "true",
                                  store="rediss://localhost:%d?tls_ca=%s" % (peer.port, ca)), tmp)
        wait_for(lambda peer=peer: peer.ends > 3, what="the worker to come again and again")
        worker.kill()


class Drip(threading.Thread):
    """Between a client and a server: hands on a few bytes at a time, and can cut all of its connections."""

    def __init__(self, port, piece):
        super().__init__(daemon=True)
        self.target, self.piece, self.pairs = port, piece, []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.start()

    def run(self):
        while True:
            near = self.socket.accept()[0]
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            for a, b in (near, far), (far, near):
                b.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.carry, args=(a, b), daemon=True).start()
            self.pairs.append((near, far))

    def carry(self, a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                for i in range(0, len(data), self.piece):
                    b.sendall(data[i:i + self.piece])
            b.shutdown(socket.SHUT_WR)

    def cut(self):
        while self.pairs:
            for sock in self.pairs.pop():
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)


@test
def bytes_may_come_in_any_pieces(tmp):
    server = Secure(tmp)
    drip = Drip(server.port, 1)
    store = "rediss://localhost:%d?tls_ca=%s" % (drip.port, server.ca)
    equal(impel_ok("add", "--stream", "s", "a=" + "x" * 20000, store=store, deadline_s=60)[-3:], "-0\n")
    equal(len(json_lines(impel_ok("read", "--stream", "s", store=store, deadline_s=60))[0]["fields"]["a"]), 20000)


@test
def a_worker_outlives_cuts_and_its_server_s_restarts(tmp):
    server = Secure(tmp, "--appendonly", "yes", "--appendfsync", "always")
    drip = Drip(server.port, 1000)
    fleet = Fleet(tmp, "rediss://localhost:%d?tls_ca=%s" % (drip.port, server.ca), work="sleep 0.05",
                  options=["--dead-after", "5s", "--backoff", "50ms..200ms", "--concurrency", "4"])
    workers = [fleet.start("--consumer", "w%d" % i) for i in range(2)]
    ids = fleet.add(60)
    fleet.wait_for_starts(5)
    drip.cut()
    fleet.wait_for_starts(15)
    server.process.kill()
    server.again()
    fleet.wait_for_starts(40)
    drip.cut()
    wait_for(lambda: set(ids) <= fleet.ended(), 90, "all entries to be done")
    wait_for(lambda: fleet.group_status()["pending"] == 0, what="an empty PEL")
    equal(fleet.overlaps(), [])
    for worker in workers:
        contains(worker.err(), "is back")
        equal(worker.stop().code, 0, worker.err()[-2000:])


@test
def certificates_are_renewed_while_workers_run(tmp):
    """The client's are read at every connection; a server's bad one is waited out by who knew it before."""
    friends, believed = authority(tmp, "friends"), tmp / "believed.pem"
    believed.write_bytes(authority(tmp, "first").read_bytes())
    server = Secure(tmp, "--tls-ca-cert-file", believed, clients="yes")
    files = certificate(tmp, "friend", "first")
    more = "&tls_cert=%s&tls_key=%s" % files
    worker = start(impel_argv("run", "--stream", "s", "--group", "g", "--", "sh", "-c", "echo >>%s/done" % tmp,
                              store=server.at("localhost", more=more)), tmp)
    impel_ok("add", "--stream", "s", "a=1", store=server.at("localhost", more=more))
    wait_for(lambda: (tmp / "done").exists(), what="the first entry")
    good = [path.read_bytes() for path in (server.cert, server.key)]
    certificate(tmp, "server", days=-1)
    server.process.kill()
    server.again()
    worker.wait_for_output("certificate has expired")
    check(worker.running(), worker.err())
    for path, data in zip((server.cert, server.key), good):
        path.write_bytes(data)
    server.process.kill()
    certificate(tmp, "friend", "friends")
    believed.write_bytes(friends.read_bytes())  # and the first authority not any more
    server.again()
    worker.wait_for_output("is back")
    done = (tmp / "done").stat().st_size
    impel_ok("add", "--stream", "s", "a=2", store=server.at("localhost", more=more))
    wait_for(lambda: (tmp / "done").stat().st_size > done, what="the second entry")
    equal(worker.stop().code, 0, worker.err())


@test
def an_impel_serve_over_tls_has_the_whole_story(tmp):
    ca = authority(tmp, "ca")
    cert, key = certificate(tmp, "server")
    port = free_port()
    serve = start(impel_argv("serve", "--listen", "127.0.0.1:%d" % port, "--tls-cert", cert, "--tls-key", key,
                             "--tls-ca", ca, store=str(tmp / "db")), tmp)
    serve.wait_for_output("with TLS")
    store, mine = "rediss://localhost:%d" % port, ["--tls-ca", ca, "--tls-cert", cert, "--tls-key", key]
    done = impel("drill", "--json", "--workers", "3", "--kills", "1", "--entries", "30", *mine, store=store,
                 env={"TMPDIR": str(tmp)}, deadline_s=120)
    equal(done.code, 0, done.out + done.err)
    impel_ok("add", "--stream", "s", *mine, "a=1", store=store)
    done = impel("run", "--stream", "s", "--group", "g", "--until-idle", *mine, "--", "true", store=store, deadline_s=60)
    equal(done.code, 0, done.err)
    equal(impel("sweep", "--once", "--stream", "s", "--group", "g", "--dead-after", "500ms", *mine, store=store).code, 0)
    done = impel("status", "--json", *mine, store=store)
    equal([g["pending"] for s in json.loads(done.out)["streams"] for g in s["groups"]], [0], done.err)
    refused(store, "want", args=["--tls-ca", ca])


@test
def streams_are_copied_from_plain_to_tls(tmp):
    server = Secure(tmp)
    impel_ok("add", "--stream", "s", "a=1", store=tmp / "db")
    impel_ok("copy", "--from", "lmdb:%s/db" % tmp, "--to", "rediss://localhost:%d" % server.port, "--tls-ca", server.ca)
    impel_ok("copy", "--from", "redis://127.0.0.1:%d" % server.plain_port, "--to", server.url + "&db=1", "--tls-ca",
             tmp / "ca.pem")
    equal([e["fields"] for e in json_lines(impel_ok("read", "--stream", "s", store=server.url + "&db=1"))], [{"a": "1"}])


@test
def the_config_file_and_relative_paths_do(tmp):
    server = Secure(tmp)
    (tmp / "impel.yaml").write_text("store: rediss://localhost:%d\ntls-ca: ca.pem\n" % server.port)
    equal(impel("call", "--config", "impel.yaml", "PING", cwd=tmp).out, "PONG\n")
    equal(impel("call", "PING", cwd=tmp, store="rediss://localhost:%d?tls_ca=ca%%2epem" % server.port).out, "PONG\n")


main()
