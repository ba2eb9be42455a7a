"""The answers: who waits where, why, until when, and what runs next, for one asker. Nothing is written."""

from __future__ import annotations

from gangline.control.answers.live.answers import LiveAnswers
from gangline.control.answers.of_jobs import JobAnswers
from gangline.control.answers.of_queues import QueueAnswers
from gangline.control.answers.of_record import RecordAnswers


class Answers(JobAnswers, QueueAnswers, RecordAnswers, LiveAnswers):
    """The answers about jobs, queues and the record of the past, and the live rows of all, from one source."""
