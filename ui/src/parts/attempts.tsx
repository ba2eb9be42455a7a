/** Attempts of jobs: how each ended, and what it lost. */
import type { Attempt, LostTo } from '../api/types'
import { useNow } from '../clock'
import { clock, decimal, duration, fullTime, number, RULES } from '../words'
import { Badge, type Tone } from './badges'
import type { IconName } from './icons'
import { Scroll } from './panel'

const ENDS: Record<Attempt['end'], [Tone, IconName, string]> = {
  '': ['good', 'play', 'In progress'],
  Succeeded: ['idle', 'check', 'Succeeded'],
  Failed: ['bad', 'cross', 'Failed'],
  Preempted: ['warn', 'left', 'Preempted'],
  Evicted: ['warn', 'eject', 'Evicted'],
  Cancelled: ['idle', 'stop', 'Cancelled'],
  Released: ['idle', 'dash', 'Released'],
}

export function AttemptEnd({ attempt }: { attempt: Pick<Attempt, 'end'> }) {
  // a newer operator may have ends that this page does not know
  const [tone, icon, word] = (ENDS as Partial<typeof ENDS>)[attempt.end] ?? (['idle', 'dash', attempt.end] as const)
  return <Badge tone={tone} icon={icon} word={word} />
}

const LOST: Record<LostTo, string> = { preemption: 'preemption', failure: 'failure', overrun: 'overrun', cancel: 'cancellation', eviction: 'eviction' }

export const lostWords = (lostTo: LostTo): string => (LOST as Partial<typeof LOST>)[lostTo] ?? lostTo

const WORST_FIRST = 20

/** All attempts of one job: a strip in time, and a table. */
export function AttemptsOf({ attempts, open }: { attempts: Attempt[]; open: (attempt: Attempt) => void }) {
  const now = useNow(30)
  const rows = [...attempts].sort((a, b) => b.reserved - a.reserved)
  const shown = rows.slice(0, WORST_FIRST)
  const lost = rows.reduce((sum, each) => sum + (each.lostGpuHours ?? 0), 0)
  const used = rows.reduce((sum, each) => sum + each.gpuHours, 0)
  return (
    <div className="stack">
      <p>
        {rows.length === 1 ? 'The job held GPUs once' : `The job held GPUs ${number(rows.length)} times`}, for {decimal(used)} GPU-hours. {lost > 0 ? `Work of ${decimal(lost)} GPU-hours was lost.` : 'No work was lost.'}
      </p>
      <AttemptStrip attempts={rows} now={now} />
      <Scroll label="Attempts">
        <table className="plain">
          <thead>
            <tr>
              <th scope="col" className="number">No.</th>
              <th scope="col">Began</th>
              <th scope="col" className="number">Held for</th>
              <th scope="col" className="number" title="Until all of its pods were ready">Starting</th>
              <th scope="col">End</th>
              <th scope="col" className="number">Lost</th>
              <th scope="col" className="number">GPU-hours lost</th>
              <th scope="col">Inputs</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((each) => (
              <tr key={each.reserved}>
                <td className="number">{each.attempt}</td>
                <td className="nowrap" title={fullTime(each.reserved)}>{clock(each.reserved, now)}</td>
                <td className="number">{duration((each.ended ?? now) - each.reserved)}</td>
                <td className="number">{each.ready === null ? '' : duration(each.ready - each.reserved)}</td>
                <td title={each.text}>
                  <AttemptEnd attempt={each} /> <span className="quiet small">{endWords(each)}</span>
                </td>
                <td className="number">{each.lostSeconds ? duration(each.lostSeconds) : ''}</td>
                <td className="number">{each.lostGpuHours ? decimal(each.lostGpuHours) : ''}</td>
                <td>
                  <button type="button" className="button small" aria-label={`Inputs of attempt ${each.attempt}`} onClick={() => open(each)}>
                    Inputs
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {rows.length > shown.length && <p className="quiet small">The last {number(shown.length)} are listed.</p>}
    </div>
  )
}

function endWords(each: Attempt): string {
  if (each.end === 'Preempted') return [each.by && `for ${each.by}`, RULES[each.reason] ?? each.reason].filter(Boolean).join(', ')
  return each.end === 'Succeeded' || each.end === '' ? '' : each.reason
}

/** Waits and attempts of a job from its submission on. */
function AttemptStrip({ attempts, now }: { attempts: Attempt[]; now: number }) {
  const first = attempts[attempts.length - 1]
  const last = attempts[0]
  if (!first || !last) return null
  const from = Math.min(first.submitted || first.reserved, first.reserved)
  const to = Math.max(from + 60, last.ended ?? now)
  const place = (at: number) => `${Math.min(100, Math.max(0, (100 * (at - from)) / (to - from)))}%`
  const width = (begin: number, end: number) => `${Math.max(0.3, (100 * (Math.max(begin, end) - begin)) / (to - from))}%`
  return (
    <figure>
      <div className="tries" role="img" aria-label={`${number(attempts.length)} attempts from ${clock(from, now)} to ${clock(to, now)}; the table below has each.`}>
        {attempts.slice(0, 200).map((each) => {
          const end = each.ended ?? now
          const ready = Math.min(each.ready ?? end, end)
          return (
            <span key={each.reserved}>
              <i className="try fill-plan" style={{ left: place(each.reserved), width: width(each.reserved, ready) }} />
              <i className={`try ${each.ended === null ? 'fill-good' : 'fill-used'}`} style={{ left: place(ready), width: width(ready, end) }} />
              {each.lostSeconds ? <i className="try lost" style={{ left: place(Math.max(each.reserved, end - each.lostSeconds)), width: width(Math.max(each.reserved, end - each.lostSeconds), end) }} /> : null}
            </span>
          )
        })}
      </div>
      <figcaption className="quiet small tries-ends">
        <span>{clock(from, now)}, submitted</span>
        <span>{last.ended === null ? 'now' : clock(to, now)}</span>
      </figcaption>
    </figure>
  )
}
