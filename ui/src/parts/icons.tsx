/** Small shapes drawn here: no icon font, no picture of others. */
import type { ReactNode } from 'react'

const PATHS = {
  // states: distinguished by shape, so that no colour has to be seen
  play: <path d="M3 1.5v9l7.5-4.5z" fill="currentColor" />,
  half: <><circle cx="6" cy="6" r="4.4" fill="none" stroke="currentColor" strokeWidth="1.6" /><path d="M6 1.6a4.4 4.4 0 0 1 0 8.8z" fill="currentColor" /></>,
  ring: <circle cx="6" cy="6" r="4.2" fill="none" stroke="currentColor" strokeWidth="1.8" />,
  dotRing: <><circle cx="6" cy="6" r="4.4" fill="none" stroke="currentColor" strokeWidth="1.6" /><circle cx="6" cy="6" r="1.8" fill="currentColor" /></>,
  stop: <rect x="2" y="2" width="8" height="8" rx="1" fill="currentColor" />,
  check: <path d="M1.8 6.4 4.7 9.3 10.3 2.9" fill="none" stroke="currentColor" strokeWidth="2" />,
  cross: <path d="m2.4 2.4 7.2 7.2m0-7.2-7.2 7.2" fill="none" stroke="currentColor" strokeWidth="2" />,
  pause: <path d="M2.6 1.8h2.4v8.4H2.6zM7 1.8h2.4v8.4H7z" fill="currentColor" />,
  warn: <><path d="M6 .8 11.6 11H.4z" fill="currentColor" /><path d="M6 4.3v3.2m0 .9v1.2" stroke="var(--panel)" strokeWidth="1.3" /></>,
  dash: <path d="M1.5 6h9" stroke="currentColor" strokeWidth="2.2" />,
  never: <><circle cx="6" cy="6" r="4.4" fill="none" stroke="currentColor" strokeWidth="1.7" /><path d="m3 9 6-6" stroke="currentColor" strokeWidth="1.7" /></>,
  hourglass: <path d="M2.5 1h7v1.6L7 6l2.5 3.4V11h-7V9.4L5 6 2.5 2.6z" fill="none" stroke="currentColor" strokeWidth="1.3" />,
  up: <path d="M1 8.5 6 3l5 5.5" fill="none" stroke="currentColor" strokeWidth="2" />,
  down: <path d="M1 3.5 6 9l5-5.5" fill="none" stroke="currentColor" strokeWidth="2" />,
  right: <path d="M3.5 1 9 6l-5.5 5" fill="none" stroke="currentColor" strokeWidth="2" />,
  eject: <path d="M6 1.2 11 6.6H1zM1 8.6h10v2H1z" fill="currentColor" />,
  left: <path d="M8.5 1 3 6l5.5 5" fill="none" stroke="currentColor" strokeWidth="2" />,
  // pages
  now: <path d="M1 9.5a5 5 0 0 1 10 0M6 9.5 8.6 5" fill="none" stroke="currentColor" strokeWidth="1.3" />,
  timeline: <path d="M1 2.5h6M3.5 6H10M2 9.5h4.5" stroke="currentColor" strokeWidth="1.7" />,
  jobs: <path d="M1 2.5h10M1 6h10M1 9.5h10" stroke="currentColor" strokeWidth="1.2" />,
  queues: <path d="M2 1v9.5h3M2 5h3m1.5-1.5H11v3H6.5zM6.5 9H11v3" fill="none" stroke="currentColor" strokeWidth="1.2" />,
  nodes: <path d="M1.5 1.5h3.5v3.5H1.5zM7 1.5h3.5v3.5H7zM1.5 7h3.5v3.5H1.5zM7 7h3.5v3.5H7z" fill="none" stroke="currentColor" strokeWidth="1.2" />,
  trust: <path d="M6 .9 10.5 2.6v3.2c0 2.6-1.8 4.5-4.5 5.4C3.3 10.3 1.5 8.4 1.5 5.8V2.6zM3.8 5.9l1.7 1.7 2.9-3.2" fill="none" stroke="currentColor" strokeWidth="1.2" />,
  use: <path d="M2 10.5V6.5m4 4V1.5m4 9V4.5" stroke="currentColor" strokeWidth="1.9" />,
  operator: <><circle cx="6" cy="6" r="1.8" fill="none" stroke="currentColor" strokeWidth="1.2" /><path d="M6 .8v1.7m0 7v1.7M.8 6h1.7m7 0h1.7M2.3 2.3l1.2 1.2m5 5 1.2 1.2m0-7.4L8.5 3.5m-5 5L2.3 9.7" stroke="currentColor" strokeWidth="1.3" /></>,
  // controls
  sun: <><circle cx="6" cy="6" r="2.3" fill="currentColor" /><path d="M6 .5v1.5m0 8v1.5M.5 6H2m8 0h1.5M2.1 2.1l1.1 1.1m5.6 5.6 1.1 1.1m0-7.8L8.8 3.2M3.2 8.8 2.1 9.9" stroke="currentColor" strokeWidth="1.2" /></>,
  moon: <path d="M10.3 7.6A4.8 4.8 0 0 1 4.4 1.7a4.8 4.8 0 1 0 5.9 5.9z" fill="currentColor" />,
  copy: <path d="M4 3.5h6.5v7.5H4zM8 3.5V1H1.5v7.5H4" fill="none" stroke="currentColor" strokeWidth="1.2" />,
  person: <><circle cx="6" cy="3.6" r="2.3" fill="none" stroke="currentColor" strokeWidth="1.3" /><path d="M1.6 11c.5-2.6 2.2-3.7 4.4-3.7s3.9 1.1 4.4 3.7" fill="none" stroke="currentColor" strokeWidth="1.3" /></>,
  close: <path d="m2 2 8 8m0-8-8 8" stroke="currentColor" strokeWidth="1.5" />,
} satisfies Record<string, ReactNode>

export type IconName = keyof typeof PATHS

export function Icon({ name }: { name: IconName }) {
  return (
    <svg viewBox="0 0 12 12" aria-hidden="true" focusable="false">
      {PATHS[name]}
    </svg>
  )
}

export function Mark() {
  return (
    <svg viewBox="0 0 16 16" aria-hidden="true">
      <rect width="16" height="16" rx="3" fill="#1d4f5c" />
      <path d="M3 4.5h7M3 8h10M3 11.5h5" stroke="#e9f3f2" strokeWidth="1.8" strokeLinecap="round" />
    </svg>
  )
}
