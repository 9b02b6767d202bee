"""certificates -- made by openssl in a test's folder: authorities, and what they sign."""
import subprocess

from impeltest import equal, skip

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def openssl(folder, *args):
    try:
        done = subprocess.run(["openssl", *map(str, args)], cwd=str(folder), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except OSError:
        skip("no openssl command here")
    equal(done.returncode, 0, done.stdout.decode())


def authority(folder, name):
    openssl(folder, "req", "-x509", *KEY, "-subj", "/CN=" + name, "-addext",
            "keyUsage=critical,keyCertSign,cRLSign", "-days", "2", "-keyout", name + ".key", "-out", name + ".pem")
    return folder / (name + ".pem")


def certificate(folder, name, ca="ca", names="DNS:localhost,IP:127.0.0.1", days=2):
    """Signed by the authority. Paths of the certificate and of its key. With negative days it is over."""
    # What Python 3.13 insists on stands there, too.
    (folder / "ext").write_text("subjectAltName=%s\nbasicConstraints=CA:FALSE\n"
                                "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n" % names)
    openssl(folder, "req", *KEY, "-subj", "/CN=" + name, "-keyout", name + ".key", "-out", name + ".csr")
    if days > 0:
        when = ["x509", "-req", "-CAcreateserial", "-days", days]
        files = ["-CA", ca + ".pem", "-CAkey", ca + ".key", "-extfile", "ext"]
    else:
        (folder / "ca.cnf").write_text("[ca]\ndefault_ca=it\n[it]\ndatabase=index\nnew_certs_dir=.\nrand_serial=yes\n"
                                       "default_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n")
        (folder / "index").write_text("")
        when = ["ca", "-batch", "-config", "ca.cnf", "-startdate", "20200101000000Z", "-enddate", "20200102000000Z"]
        files = ["-cert", ca + ".pem", "-keyfile", ca + ".key", "-extfile", "ext"]
    openssl(folder, *when, "-in", name + ".csr", *files, "-out", name + ".pem")
    return folder / (name + ".pem"), folder / (name + ".key")
