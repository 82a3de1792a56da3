"""A hub of datasets for tests: files by revision that lead to signed addresses, and listings in pages.

The folder of an ObjectServer holds OWNER/NAME/REVISION/file; with a token only its bearer sees the repository, and others
are told that there is none, as the hub does.
"""

import json
import urllib.parse

from object_server import Handler, ObjectServer

TOKEN = "hf_a-token-that-no-message-has"
FILES_PER_PAGE = 2


class HubHandler(Handler):
    def do_HEAD(self):
        """Signed addresses are good for reading alone."""
        self.answer(403, {"Content-Type": "text/html"})

    def give_any(self):
        path, _, query = self.path.partition("?")
        parts = urllib.parse.unquote(path).strip("/").split("/")
        if parts[0] == "signed":
            return self.give_file(self.server.folder.joinpath(*parts[1:])) if query == "signature=good" else self.answer(403)
        if self.server.token is not None and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            return self.answer(401, {"X-Error-Code": "RepoNotFound"}, b"Repository not found")
        if parts[:2] == ["api", "datasets"] and parts[4] == "tree":
            return self.list_files(self.server.folder.joinpath(*parts[2:4], parts[5]), "/".join(parts[6:]), query)
        if parts[0] == "datasets" and parts[3] == "resolve":
            file = "/".join([*parts[1:3], *parts[4:]])
            if not (self.server.folder / file).is_file():
                return self.answer(404, {"X-Error-Code": "EntryNotFound"})
            return self.answer(302, {"Location": f"/signed/{urllib.parse.quote(file)}?signature=good"})
        return self.answer(404)

    def give_file(self, file):
        return self.give(file.read_bytes(), self.server.next_fault("GET"))

    def list_files(self, root, folder, query):
        if not (root / folder).is_dir():
            return self.answer(404)
        begin = int(dict(urllib.parse.parse_qsl(query)).get("cursor", 0))
        entries = [{"type": "file" if file.is_file() else "directory", "path": str(file.relative_to(root)),
                    "size": file.stat().st_size, "oid": "0"} for file in sorted((root / folder).iterdir())]
        headers = {"Content-Type": "application/json"}
        if begin + FILES_PER_PAGE < len(entries):
            there = self.path.partition("?")[0]
            headers["Link"] = f'<{self.server.url}{there}?cursor={begin + FILES_PER_PAGE}>; rel="next"'
        return self.answer(200, headers, json.dumps(entries[begin:begin + FILES_PER_PAGE]).encode())


class HubServer(ObjectServer):
    def __init__(self, folder, token=None):
        super().__init__(folder, handler=HubHandler)
        self.token = token
