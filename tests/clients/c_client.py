"""The C client of `clients/c`, compiled with this machine's compilers and called from Python.

The random words come from the caller, so that the client and the library can be compared bit by bit.
"""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np

import sstq
from sstq.clients.c_header import c_parameters, c_questions
from tests.clients.cases import vectors
from tests.clients.vectors import sent_by_library

SOURCES = Path(__file__).parents[2] / "clients" / "c"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-ffp-contract=off")
SHARED = ("-O3", "-shared", "-fPIC")
_KINDS = {"frameunit": 1, "groupunit": 2, "sstq": 3}
_ALL_KINDS = _KINDS | {"frequencies": 4}
_HIGHEST = 2**64 - 1


def compilers():
    """The C compilers that are installed: gcc and clang, or else cc."""
    return [name for name in ("gcc", "clang") if shutil.which(name)] or [
        name for name in ("cc",) if shutil.which(name)
    ]


def compile_client(compiler, output, *options, sources=()):
    """Compile the client, and further sources, with the strict flags and the given options."""
    files = [str(source) for source in (SOURCES / "sstq.c", *sources)]
    command = [
        compiler,
        *STRICT,
        *options,
        f"-I{SOURCES}",
        *files,
        "-o",
        str(output),
        "-lm",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"{' '.join(command)} failed:\n{done.stderr}")
    return output


class Parameters(ctypes.Structure):
    """`sstq_params`."""

    _fields_ = (
        ("mechanism", ctypes.c_int),
        ("digest", ctypes.c_char_p),
        ("epsilon", ctypes.c_double),
        ("clip", ctypes.c_double),
        ("dim", ctypes.c_uint32),
        ("frame_size", ctypes.c_uint32),
        ("frame_seed", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("rounds", "frames", "inside")),
        ("threshold", ctypes.c_uint64),
        *(
            (name, ctypes.c_uint32)
            for name in (
                "groups",
                "blocks",
                "vector_frames",
                "share_size",
                "share_inside",
            )
        ),
        ("share_threshold", ctypes.c_uint64),
        ("bits", ctypes.c_uint32),
        ("steps", ctypes.c_uint32),
        ("schedule", ctypes.POINTER(ctypes.c_float)),
        ("codebook", ctypes.POINTER(ctypes.c_double)),
        ("own", ctypes.c_uint64),
        ("other", ctypes.c_uint64),
    )


class Question(ctypes.Structure):
    """`sstq_question`."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("draw", ctypes.c_uint64),
        ("items", ctypes.c_uint32),
        ("part", Parameters),
        ("labels", ctypes.c_uint32),
        ("label_names", ctypes.c_void_p),
        ("low", ctypes.c_double),
        ("high", ctypes.c_double),
        ("group", ctypes.c_uint32),
        ("value", ctypes.c_uint32),
    )


class Survey(ctypes.Structure):
    """`sstq_survey`."""

    _fields_ = (
        ("digest", ctypes.c_char_p),
        ("epsilon", ctypes.c_double),
        ("count", ctypes.c_uint32),
        ("questions", ctypes.POINTER(Question)),
    )


class Answer(ctypes.Structure):
    """`sstq_answer`."""

    _fields_ = (
        ("given", ctypes.c_uint32),
        ("label", ctypes.c_uint32),
        ("marks", ctypes.c_char_p),
        ("number", ctypes.c_double),
        ("vector", ctypes.POINTER(ctypes.c_float)),
    )


def survey_of(survey):
    """What the header of a survey says, in memory."""
    rows = []
    for entry, part in zip(c_questions(survey), survey.parts, strict=True):
        rows.append(
            Question(
                **entry
                | {
                    "name": entry["name"].encode(),
                    "part": parameters_of(part.mechanism),
                }
            )
        )
    questions = (Question * len(rows))(*rows)
    return Survey(survey.digest().encode(), survey.epsilon, len(rows), questions)


def answers_of(survey, record):
    """A person's record as a device in C holds it: numbers of labels, marks, doubles and floats."""
    found = (Answer * len(survey.questions))()
    for answer, (name, question) in zip(found, survey.questions.items(), strict=True):
        value = record.get(name)
        if value is None:
            continue
        answer.given = 1
        answer.label = 2**32 - 1
        answer.number = float("nan")
        labels = list(getattr(question, "labels", ()))
        if (
            question.type == "choice"
            and value in labels
            and not isinstance(value, bool)
        ):
            answer.label = labels.index(value)
        elif question.type == "multichoice" and isinstance(value, list):
            marks = bytes(label in value for label in labels)
            answer.marks = marks if any(marks) or not value else None
        elif (
            question.type in ("number", "count")
            and isinstance(value, int | float)
            and not isinstance(value, bool)
        ):
            answer.number = value
        elif (
            question.type == "vector"
            and isinstance(value, list)
            and len(value) == question.dim
        ):
            given = [float("nan") if number is None else number for number in value]
            answer.vector = (ctypes.c_float * question.dim)(
                *np.clip(given, -3e38, 3e38)
            )
    return found


class Sizes(ctypes.Structure):
    """`sstq_sizes`."""

    _fields_ = (("floats", ctypes.c_size_t), ("words", ctypes.c_size_t))


class Buffers(ctypes.Structure):
    """`sstq_buffers`."""

    _fields_ = (
        ("floats", ctypes.c_void_p),
        ("words", ctypes.c_void_p),
        ("sizes", Sizes),
    )


Random = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_ubyte), ctypes.c_size_t
)


def parameters_of(mechanism):
    """What `sstq inspect --c-header` writes for a mechanism, in memory."""
    given = c_parameters(mechanism) | {
        "mechanism": _ALL_KINDS[mechanism.name],
        "digest": mechanism.digest().encode(),
    }
    for field, table in given.items():
        if isinstance(table, np.ndarray):
            # Arrays of ctypes stay alive with the structure that points to them.
            number = ctypes.c_float if table.dtype == np.float32 else ctypes.c_double
            given[field] = (number * table.size)(*table.flat)
    return Parameters(**given)


def load(path):
    """The compiled client, its functions with their types."""
    library = ctypes.CDLL(str(path))
    u32 = ctypes.c_uint32
    u64 = ctypes.c_uint64
    size = ctypes.c_size_t
    pointer = ctypes.c_void_p
    params = ctypes.POINTER(Parameters)
    buffers = ctypes.POINTER(Buffers)
    surveys = ctypes.POINTER(Survey)
    types = {
        "error_name": (ctypes.c_char_p, ctypes.c_int),
        "check": (ctypes.c_int, params),
        "sizes_of": (ctypes.c_int, params, ctypes.POINTER(Sizes)),
        "message_bits": (u32, params),
        "words_each": (u32, params),
        "encode": (
            ctypes.c_int,
            params,
            pointer,
            size,
            u32,
            pointer,
            pointer,
            buffers,
            ctypes.POINTER(u64),
        ),
        "check_survey": (ctypes.c_int, surveys),
        "survey_sizes": (ctypes.c_int, surveys, ctypes.POINTER(Sizes)),
        "survey_bits": (u32, surveys),
        "encode_survey": (
            ctypes.c_int,
            surveys,
            pointer,
            pointer,
            pointer,
            buffers,
            ctypes.POINTER(u64),
        ),
        "pack": (None, u64, u32, size, pointer),
        "system_random": (ctypes.c_int, pointer, pointer, size),
        "choose_columns": (None, params, pointer, pointer, pointer),
        "coordinate": (ctypes.c_float, params, pointer, u32, buffers),
    }
    for name, (result, *arguments) in types.items():
        function = getattr(library, f"sstq_{name}")
        function.restype = result
        function.argtypes = arguments
    return library


class Encoder:
    """A mechanism in C, with its buffers; `asked` are the bytes that it has asked the source for, call by call."""

    sizes_of = "sstq_sizes_of"
    made_of = staticmethod(parameters_of)

    def __init__(self, library, mechanism, parameters=None):
        self.library = library
        self.mechanism = mechanism
        self.parameters = self.made_of(mechanism) if parameters is None else parameters
        sizes = Sizes()
        self._refuse(getattr(library, self.sizes_of)(self.parameters, sizes))
        self.floats = np.empty(sizes.floats, np.float32)
        self.words = np.empty(sizes.words, np.uint32)
        self.buffers = Buffers(self.floats.ctypes.data, self.words.ctypes.data, sizes)
        self.asked = []
        self._script = b""
        self._source = Random(self._hand_out)

    def _refuse(self, error):
        if error:
            raise ValueError(self.library.sstq_error_name(error).decode())

    def _hand_out(self, _context, target, size):
        self.asked.append(size)
        ctypes.memmove(target, self._script[:size], size)
        return int(len(self._script) < size)

    def encode(self, row, words, group=0):
        """The message of a vector, float32 (d,), from the given words; ValueError with the name of an error.

        Without words the client takes the operating system's.
        """
        message = ctypes.c_uint64()
        source = None
        if words is not None:
            self._script = np.asarray(words, "<u8").tobytes()
            source = ctypes.cast(self._source, ctypes.c_void_p)
        arguments = (
            self.parameters,
            row.ctypes.data,
            len(row),
            group,
            source,
            None,
            self.buffers,
            message,
        )
        self._refuse(self.library.sstq_encode(*arguments))
        return message.value

    def columns(self, message):
        """The fields of a message."""
        values = []
        for field in self.mechanism.layout.fields:
            values.append(message & ((1 << field.bits) - 1))
            message >>= field.bits
        assert message == 0
        return values


class SurveyEncoder(Encoder):
    """The same for a survey."""

    sizes_of = "sstq_survey_sizes"
    made_of = staticmethod(survey_of)

    def answer(self, record, words):
        """The message of a person's record."""
        message = ctypes.c_uint64()
        answers = answers_of(self.mechanism, record)
        self._script = np.asarray(words, "<u8").tobytes()
        source = ctypes.cast(self._source, ctypes.c_void_p)
        self._refuse(
            self.library.sstq_encode_survey(
                self.parameters, answers, source, None, self.buffers, message
            )
        )
        return message.value


def random_mechanism(rng):
    """Any mechanism of those that the client has, of up to a few thousand dimensions."""
    dim = int(2 ** rng.uniform(0, 12 if rng.random() < 0.1 else 8))
    common = {
        "epsilon": float(2 ** rng.uniform(-3, 4)),
        "clip": float(2 ** rng.uniform(-30, 30)),
    }
    common["frame_seed"] = int(
        rng.integers(0, _HIGHEST, dtype=np.uint64, endpoint=True)
    )
    frames = int(rng.choice([1, 2, 3, 40, 4096]))
    kind = rng.integers(3)
    if kind == 0:
        size = (
            None
            if rng.random() < 0.5
            else 1 << (dim - 1).bit_length() << int(rng.integers(3))
        )
        return sstq.FrameUnit(dim, frames=frames, frame_size=size, **common)
    if kind == 1:
        groups = int(2 ** rng.uniform(1, 8))
        blocks = (
            None if rng.random() < 0.5 else int(rng.integers(1, groups, endpoint=True))
        )
        shares = 0.0 if frames == 1 else float(rng.choice([0.0, 0.1, 0.5]))
        dim = -(-dim // 4)
        return sstq.GroupUnit(
            dim,
            groups=groups,
            blocks=blocks,
            frames=frames,
            share_people=shares,
            **common,
        )
    return sstq.SSTQ(
        dim, bits=int(rng.integers(1, 9)), steps=int(rng.integers(1, 14)), **common
    )


def random_inputs(mechanism, count, rng):
    """Vectors of all kinds, any finite bit patterns among them; groups and words, some of these extreme."""
    rows = vectors(mechanism, count, rng)
    patterns = rng.integers(0, 1 << 32, size=rows.shape, dtype=np.uint32).view(
        np.float32
    )
    wild = rng.random(count) < 0.1
    rows[wild] = np.where(np.isfinite(patterns), patterns, 0)[wild]
    groups = rng.integers(mechanism.groups, size=count) if mechanism.groups else None
    words = rng.integers(
        0, _HIGHEST, size=(count, mechanism.words_each), dtype=np.uint64, endpoint=True
    )
    words[rng.random(words.shape) < 0.03] = 0
    words[rng.random(words.shape) < 0.03] = _HIGHEST
    return rows, groups, words


def sent_by_client(encoder, rows, groups, words):
    """The fields of the C client's messages, a list each."""
    groups = np.zeros(len(rows), np.int64) if groups is None else groups
    given = zip(rows, words, groups.tolist(), strict=True)
    return [encoder.columns(encoder.encode(*each)) for each in given]


def disagreements(encoder, rows, groups, words):
    """How many vectors give another message in C than in the library."""
    ours = sent_by_library(
        encoder.mechanism, encoder.mechanism.input.read(rows, groups), words
    )
    theirs = sent_by_client(encoder, rows, groups, words)
    return sum(one != other for one, other in zip(ours, theirs, strict=True))


def differences(library, count, rng, each=50):
    """How many of about `count` random inputs give another message in C than in the library, by mechanism's name."""
    different = dict.fromkeys(_KINDS, 0)
    tried = dict.fromkeys(_KINDS, 0)
    while sum(tried.values()) < count:
        mechanism = random_mechanism(rng)
        different[mechanism.name] += disagreements(
            Encoder(library, mechanism), *random_inputs(mechanism, each, rng)
        )
        tried[mechanism.name] += each
    return different, tried
