"""Makes authorities and certificates with openssl, for tests of mutual TLS."""

import subprocess


class Party:
    """A certificate for `names`, signed by an authority of its own: folder / NAME.pem, NAME.key, NAME-ca.pem."""

    def __init__(self, folder, name, *names, extended_usage=""):
        self.certificate, self.key, self.ca = (folder / f"{name}{end}" for end in (".pem", ".key", "-ca.pem"))
        ca_key, request, extensions = (folder / f"{name}{end}" for end in ("-ca.key", ".csr", ".ext"))
        new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        extensions.write_text("subjectAltName=" + ",".join(names or ["DNS:localhost"])
                              + f"\nextendedKeyUsage={extended_usage}" * bool(extended_usage))
        self._openssl("req", "-x509", *new_key, "-days", "2", "-subj", f"/CN={name} authority", "-keyout", ca_key,
                      "-out", self.ca)
        self._openssl("req", *new_key, "-subj", f"/CN={name}", "-keyout", self.key, "-out", request)
        self._openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2",
                      "-extfile", extensions, "-out", self.certificate)

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)

    def flags(self, ca=None):
        """Command line options; `ca`: the authority to trust, if not its own."""
        return ["--tls-cert", self.certificate, "--tls-key", self.key, "--tls-ca", ca or self.ca]
