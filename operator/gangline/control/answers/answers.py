"""The answers: who waits where, why, until when, and what runs next, for one asker. Nothing is written."""

from __future__ import annotations

from gangline.control.answers.desk import Wish as Wish
from gangline.control.answers.of_jobs import JobAnswers
from gangline.control.answers.of_queues import QueueAnswers
from gangline.control.answers.of_record import RecordAnswers
from gangline.control.answers.pages import Page as Page
from gangline.control.answers.refusals import NoEventsError as NoEventsError
from gangline.control.answers.refusals import NoPodsError as NoPodsError
from gangline.control.answers.refusals import NoSuchJobError as NoSuchJobError
from gangline.control.answers.refusals import NoSuchNodeError as NoSuchNodeError
from gangline.control.answers.refusals import NoSuchQueueError as NoSuchQueueError
from gangline.control.answers.refusals import NotReadableError as NotReadableError
from gangline.control.answers.refusals import NotWaitingError as NotWaitingError


class Answers(JobAnswers, QueueAnswers, RecordAnswers):
    """The answers about jobs, queues and the record of the past, from one source."""
