"""TLS on --listen: real clients, certificates of both sides, and peers that do not play along."""
import functools
import os
import signal
import socket
import ssl
import threading
import warnings

import redis

from certificates import authority, certificate, openssl
from impeltest import check, contains, equal, free_port, impel_argv, main, run, skip, start, test, wait_for
from served import SERVE, Served

CLOSED = (b"", None)


class Secure(Served):
    def __init__(self, folder, *args, **options):
        self.ca = authority(folder, "ca")
        self.cert, self.key = certificate(folder, "server")
        super().__init__(folder, "cert:%s" % self.cert, "key:%s" % self.key, *args, **options)

    def client(self, **options):
        return super().client(ssl=True, ssl_ca_certs=str(self.ca), host="localhost", **options)

    def plain_client(self):
        return redis.Redis(unix_socket_path=self.unix, decode_responses=True)

    def raw(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def context(self, **options):
        context = ssl.create_default_context(cafile=str(self.ca))
        for name, value in options.items():
            setattr(context, name, value)
        return context


def read_to_end(sock):
    got = b""
    try:
        while True:
            piece = sock.recv(65536)
            if not piece:
                return got
            got += piece
    except ConnectionError:
        return got


@test
def the_stream_story_over_tls(tmp):
    r = Secure(tmp).client()
    pipe = r.pipeline(transaction=False)
    for i in range(2000):
        pipe.xadd("s", {"n": i, "pad": "x" * 1000}, id="%d-0" % (i + 1))
    equal(len(pipe.execute()), 2000)
    r.xgroup_create("s", "g", "0")
    got = r.xreadgroup("g", "a", {"s": ">"})[0][1]
    equal([f["n"] for _, f in got], [str(i) for i in range(2000)])
    equal(len(r.xautoclaim("s", "g", "b", 0, count=500)[1]), 500)
    equal(r.xack("s", "g", *[i for i, _ in got]), 2000)
    big = os.urandom(3_000_000)
    r.xadd("big", {"f": big}, id="1-1")
    equal(redis.Redis.from_url("unix://" + str(tmp / "s")).xrange("big")[0][1][b"f"], big)


@test
def a_blocked_read_is_woken_over_tls(tmp):
    served = Secure(tmp)
    reader, got = served.client(), []
    thread = threading.Thread(target=lambda: got.extend(reader.xread({"s": "$"}, block=30000)))
    thread.start()
    wait_for(lambda: served.plain_client().info("clients")["blocked_clients"] == 1)
    served.client().xadd("s", {"a": 1}, id="5-1")
    thread.join(30)
    equal(got, [["s", [("5-1", {"a": "1"})]]])


@test
def redis_cli_speaks_tls(tmp):
    served = Secure(tmp)
    cli = ["redis-cli", "--tls", "--cacert", served.ca, "-h", "127.0.0.1", "-p", served.port]
    try:
        done = run([*cli, "XADD", "s", "1-1", "a", "b"])
    except OSError:
        skip("no redis-cli here")
    if "Unrecognized option" in done.err:
        skip("this redis-cli has no TLS")
    equal((done.code, done.out), (0, "1-1\n"), done.err)
    equal(run(cli, stdin="XLEN s\nPING\n").out, "1\nPONG\n")


@test
def both_versions_and_nothing_older(tmp):
    served = Secure(tmp)
    for version, text in [(ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")]:
        context = served.context(minimum_version=version, maximum_version=version)
        with context.wrap_socket(served.raw(), server_hostname="localhost") as s:
            equal(s.version(), text)
            s.sendall(b"PING\r\n")
            equal(s.recv(7), b"+PONG\r\n")
    old = served.context(check_hostname=False, verify_mode=ssl.CERT_NONE)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():  # that it is too old is the point
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    try:
        old.wrap_socket(served.raw())
        check(False, "TLS 1.1 was spoken")
    except (ssl.SSLError, ConnectionError):
        pass


@test
def a_handshake_may_come_byte_by_byte(tmp):
    served = Secure(tmp)
    raw, inward, outward = served.raw(), ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = served.context().wrap_bio(inward, outward, server_hostname="localhost")

    def drive(step):
        """Carries out a step of the client, byte by byte on the wire."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                for byte in outward.read():
                    raw.sendall(bytes([byte]))
                inward.write(raw.recv(1))

    drive(tls.do_handshake)
    tls.write(b"PING\r\n")
    equal(drive(functools.partial(tls.read, 7)), b"+PONG\r\n")


@test
def who_dawdles_with_the_handshake_is_closed(tmp):
    served = Secure(tmp, "handshake:3000")
    r = served.client()  # who has agreed may be silent for as long as he likes
    equal(r.ping(), True)
    idle = [served.raw() for _ in range(20)]
    idle[1].sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a hello, and no more
    for s in idle:
        equal(read_to_end(s), b"")
    look = served.plain_client()
    before = look.info("stats")["total_connections_received"]
    equal(r.ping(), True)
    equal(look.info("stats")["total_connections_received"], before)


@test
def what_is_no_handshake_is_closed_with_an_alert_and_a_word(tmp):
    served = Secure(tmp)
    for garbage in [b"PING\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"*1\r\n$4\r\nPING\r\n" * 50,
                    os.urandom(100000), b"\x16\x03\x01\xff\xff" + b"\x01" * 70000]:
        s = served.raw()
        try:
            s.sendall(garbage)
        except ConnectionError:
            pass
        check(b"PONG" not in read_to_end(s))
    equal(served.client().ping(), True)
    contains(served.process.out(), "TLS: http request")
    equal(served.plain_client().info("stats")["impel_failed_handshakes"], 5)


@test
def a_torn_record_ends_only_its_connection(tmp):
    served = Secure(tmp)
    context, raw = served.context(), served.raw()
    s = context.wrap_socket(raw, server_hostname="localhost")
    s.sendall(b"PING\r\n")
    equal(s.recv(7), b"+PONG\r\n")
    os.write(s.fileno(), b"\x17\x03\x03\x00\x20" + b"\x00" * 32)
    check(read_rest(s) in CLOSED)
    equal(served.client().ping(), True)


def read_rest(s):
    try:
        return s.recv(100)
    except (ssl.SSLError, ConnectionError):
        return None


@test
def who_does_not_read_is_cut_over_tls_too(tmp):
    served = Secure(tmp, "output:1000000")
    served.client().xadd("s", {"big": "x" * 100000})
    s = served.context().wrap_socket(served.raw(), server_hostname="localhost")
    try:
        for _ in range(500):
            s.sendall(b"XRANGE s - +\r\n")
    except (ssl.SSLError, OSError):
        pass
    look = served.plain_client()
    wait_for(lambda: look.info("stats")["client_output_buffer_limit_disconnections"] == 1,
             what="the slow reader to be cut")


@test
def a_last_word_is_heard_before_the_goodbye(tmp):
    served = Secure(tmp)
    s = served.context().wrap_socket(served.raw(), server_hostname="localhost")
    s.sendall(b"XADD s 1-1 a b\r\n")
    try:
        s.unwrap()
    except ssl.SSLError:
        pass  # the reply comes between the two goodbyes
    s.close()
    wait_for(lambda: served.plain_client().xlen("s") == 1, what="the last word")


@test
def clients_show_certificates_where_they_are_asked_for(tmp):
    ca = authority(tmp, "friends")
    cert, key = certificate(tmp, "friend", "friends")
    served = Secure(tmp, "ca:%s" % ca, "0.0.0.0:0")  # no password is needed then
    equal(served.client(ssl_certfile=str(cert), ssl_keyfile=str(key)).ping(), True)
    for options in [{}, {"ssl_certfile": str(served.cert), "ssl_keyfile": str(served.key)}]:
        try:
            served.client(**options).ping()
            check(False, "a stranger was let in")
        except redis.ConnectionError:
            pass
    contains(served.process.out(), "peer did not return a certificate")


@test
def files_that_cannot_be_used_are_named_at_the_start(tmp):
    ca = authority(tmp, "ca")
    cert, key = certificate(tmp, "server")
    other = certificate(tmp, "other")[1]
    openssl(tmp, "ec", "-in", key, "-aes128", "-passout", "pass:x", "-out", "locked.key")
    (tmp / "empty.pem").write_text("")
    for args, words in [
            (["cert:" + str(cert)], "--tls-key is missing"),
            (["key:" + str(key)], "--tls-cert is missing"),
            (["ca:" + str(ca)], "--tls-cert is missing"),
            (["cert:/nowhere.pem", "key:" + str(key)], "--tls-cert /nowhere.pem: No such file"),
            (["cert:" + str(cert), "key:" + str(other)], "not the key of the certificate"),
            (["cert:" + str(key), "key:" + str(key)], "no usable certificate in PEM form"),
            (["cert:" + str(cert), "key:" + str(cert)], "no private key in PEM form"),
            (["cert:" + str(cert), "key:" + str(tmp / "locked.key")], "it is encrypted"),
            (["cert:" + str(cert), "key:" + str(key), "ca:" + str(tmp / "empty.pem")],
             "no certificate in PEM form")]:
        done = run([SERVE, tmp / "db", "full", "127.0.0.1:0", *args])
        equal(done.code, 1, words)
        contains(done.err, words)


@test
def hangup_reads_new_certificates(tmp):
    served = Secure(tmp)

    def shown():
        with served.context().wrap_socket(served.raw(), server_hostname="localhost") as s:
            return dict(x[0] for x in s.getpeercert()["subject"])["commonName"]
    equal(shown(), "server")
    old = served.client()
    old.ping()
    cert, key = certificate(tmp, "renewed")
    os.replace(key, served.key)
    served.process.signal(signal.SIGHUP)
    served.process.wait_for_output("the old certificates stay in use")
    equal(shown(), "server")
    os.replace(cert, served.cert)
    served.process.signal(signal.SIGHUP)
    served.process.wait_for_output("the certificates have been read anew")
    equal(shown(), "renewed")
    equal(old.ping(), True)


@test
def the_program_has_the_options(tmp):
    authority(tmp, "ca")
    cert, key = certificate(tmp, "server")
    port = free_port()
    process = start(impel_argv("serve", "--listen", "127.0.0.1:%d" % port, "--tls-cert", cert,
                               "--tls-key", key, store=tmp / "db"), tmp)
    process.wait_for_output("with TLS")
    r = redis.Redis(port=port, ssl=True, ssl_ca_certs=str(tmp / "ca.pem"), host="localhost")
    equal(r.xadd("s", {"a": 1}, id="1-1"), b"1-1")
    equal(r.config_get("tls-port"), {"tls-port": str(port)})
    equal(process.stop().code, 0)
    refused = run(impel_argv("serve", "--unix", tmp / "s", "--tls-cert", cert, "--tls-key", key,
                             store=tmp / "db"))
    equal(refused.code, 2)
    contains(refused.err, "--tls-cert is for --listen")


main()
