#!/usr/bin/env python3
"""image.py DIRECTORY OUT.tar NAME:TAG ENTRYPOINT[,ARGUMENT]

Makes an image of one layer, in the form of "docker save". The same directory
always makes the same image.
"""
import hashlib
import io
import json
import sys
import tarfile

EPOCH = "1970-01-01T00:00:00Z"


def owned_by_root(info):
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def main(directory, out, name, entrypoint):
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(directory, arcname=".", filter=owned_by_root)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    entrypoint, *arguments = entrypoint.split(",")
    config = json.dumps({
        "architecture": "amd64", "os": "linux", "created": EPOCH,
        "config": {
            "Entrypoint": [entrypoint], "Cmd": arguments or None, "WorkingDir": "/",
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest]},
        "history": [{"created": EPOCH, "created_by": "image.py"}],
    }).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [digest + "/layer.tar"]}]
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
        for path, content in (
            (config_name, config),
            (digest + "/layer.tar", layer.getvalue()),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            info = tarfile.TarInfo(path)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


main(*sys.argv[1:5])
