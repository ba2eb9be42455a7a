import { describe, expect, it } from 'vitest'
import { dateFault, fromField, fromWritten, inField, written, zoneAt } from './dates'

const AT = Date.UTC(2026, 11, 1, 8, 30) / 1000

describe('dates to come', () => {
  it('are written in UTC, and read from that alone', () => {
    expect(written(AT)).toBe('2026-12-01T08:30:00Z')
    expect(fromWritten(written(AT))).toBe(AT)
    const wrong = ['', 'tomorrow', '2026-12-01', '2026-13-41T08:30:00Z', '2026-12-01T08:30:00', '9'.repeat(10_000), '<b>']
    expect(wrong.filter((each) => fromWritten(each) !== null)).toEqual([])
  })

  it('are in fields in the time zone of the browser', () => {
    const local = inField(AT)
    expect(local).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d$/)
    expect(fromField(local)).toBe(AT)
    expect(fromField('')).toBeNull()
    expect(fromField('2026-12-01T99:30')).toBeNull()
    const ahead = -new Date(AT * 1000).getTimezoneOffset()
    expect(zoneAt(AT)).toMatch(ahead < 0 ? /^UTC−\d\d:\d\d$/ : /^UTC\+\d\d:\d\d$/)
  })

  it('that can’t be asked about say why', () => {
    expect(dateFault(AT, AT)).toBe('')
    expect(dateFault(AT, AT - 13 * 86_400)).toBe('')
    expect(dateFault(null, AT)).toContain('no date')
    expect(dateFault(AT, AT + 3600)).toContain('past')
    expect(dateFault(AT, AT - 15 * 86_400)).toContain('14 days')
  })
})
