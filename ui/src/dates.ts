/** Dates to come that a person asks about: in an address as UTC, in a field as the browser's local time. */

/** Quotas are planned so many days ahead. */
export const DAYS_AHEAD = 14
const WRITTEN = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?Z$/
const IN_FIELD = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,3})?)?$/

const two = (value: number): string => String(value).padStart(2, '0')

/** An instant as an address and `gangline whatif --at` have it: 2026-12-01T08:00:00Z. */
export function written(at: number): string {
  return new Date(at * 1000).toISOString().replace('.000Z', 'Z')
}

function parsed(text: string, form: RegExp): number | null {
  if (!form.test(text)) return null
  const found = Date.parse(text)
  return Number.isNaN(found) ? null : Math.floor(found / 1000)
}

/** The instant of an address in Unix seconds; null where the text is none. */
export function fromWritten(text: string): number | null {
  return parsed(text, WRITTEN)
}

/** The value of a field of type datetime-local, in the browser's time zone. */
export function inField(at: number): string {
  const date = new Date(at * 1000)
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}T${two(date.getHours())}:${two(date.getMinutes())}`
}

/** The instant of such a value; null where it is none. */
export function fromField(text: string): number | null {
  return parsed(text, IN_FIELD)
}

/** How far clocks at an instant are ahead of UTC here: UTC+01:00. */
export function zoneAt(at: number): string {
  const minutes = -new Date(at * 1000).getTimezoneOffset()
  const ahead = Math.abs(minutes)
  return `UTC${minutes < 0 ? '−' : '+'}${two(Math.floor(ahead / 60))}:${two(ahead % 60)}`
}

/** Why a date can't be asked about, as a sentence; "" where it can. */
export function dateFault(at: number | null, now: number): string {
  if (at === null) return 'This is no date and time.'
  if (at < now - 60) return 'This time is past. The timeline shows the past.'
  if (at > now + DAYS_AHEAD * 86_400) return `Quotas are planned for ${DAYS_AHEAD} days ahead, and this time is later.`
  return ''
}
