/** Gangs that lost nodes, and how long each stage of their recovery took. */
import type { Swap } from '../api/types'
import { useNow } from '../clock'
import { clock, duration, number } from '../words'
import { Badge } from './badges'
import { Bar } from './bars'
import { NamedJob } from './jobs'
import { Empty, Scroll } from './panel'

const STAGES: readonly [string, string, string][] = [['decided', 'Decide', 'wait'], ['created', 'Make pods', 'borrowed'], ['running', 'Start pods', 'used']]

/** Gangs that lost nodes. */
export function Swaps({ swaps }: { swaps: readonly Swap[] }) {
  const now = useNow(60)
  if (!swaps.length) return <Empty>No gang lost a node.</Empty>
  const most = Math.max(...swaps.map((swap) => Object.entries(swap.seconds).reduce((sum, [stage, n]) => sum + (stage === 'total' ? 0 : n), 0)), 1)
  return (
    <Scroll label="Swaps">
      <table className="plain">
        <thead>
          <tr>
            <th scope="col">At</th>
            <th scope="col">Gang</th>
            <th scope="col" className="number">GPUs</th>
            <th scope="col">State</th>
            <th scope="col">Cause</th>
            <th scope="col">From → to</th>
            {STAGES.map(([stage, name, fill]) => (
              <th key={stage} scope="col" className="number">
                <i className={`swatch fill-${fill}`} /> {name}
              </th>
            ))}
            <th scope="col" className="bar-cell">Stages</th>
            <th scope="col" className="number">Took</th>
          </tr>
        </thead>
        <tbody>
          {swaps.slice(0, 30).map((swap, index) => {
            const parts = STAGES.map(([stage, name, fill]) => ({ name, amount: swap.seconds[stage] ?? 0, fill }))
            const whole = parts.reduce((sum, part) => sum + part.amount, 0)
            const total = swap.seconds['total']
            return (
              <tr key={index}>
                <td className="nowrap">{swap.times['detected'] ? clock(swap.times['detected'], now) : ''}</td>
                <td className="nowrap"><NamedJob {...swap} /></td>
                <td className="number">{number(swap.gpus)}</td>
                <td><SwapState swap={swap} /></td>
                <td>{swap.cause}</td>
                <td className="words">{swap.from.length ? `${swap.from.join(', ')} → ${swap.to.join(', ') || '?'}` : ''}</td>
                {STAGES.map(([stage]) => (
                  <td key={stage} className="number nowrap">{secondsWords(swap.seconds[stage])}</td>
                ))}
                <td className="bar-cell">
                  <div style={{ width: `${Math.max(3, (100 * whole) / most)}%` }}>
                    <Bar label={`Seconds of the stages of ${swap.job}`} parts={parts} total={whole} />
                  </div>
                </td>
                <td className="number nowrap">{total === undefined ? '…' : duration(total)}</td>
              </tr>
            )
          })}
        </tbody>
      </table>
    </Scroll>
  )
}

/** Stages take from milliseconds to minutes. */
function secondsWords(seconds: number | undefined): string {
  if (seconds === undefined) return ''
  return seconds < 10 ? `${seconds.toFixed(1)}s` : duration(seconds)
}

/** Gangs that left one node or came to it, for a narrow place. */
export function SwapsOf({ swaps, node }: { swaps: readonly Swap[]; node: string }) {
  const now = useNow(60)
  if (!swaps.length) return <p className="quiet">No gang lost this node or came to it.</p>
  return (
    <ul className="rows">
      {swaps.slice(0, 10).map((swap, index) => (
        <li key={index}>
          <span>
            <NamedJob {...swap} />{' '}
            <span className="quiet">
              {swap.times['detected'] ? `${clock(swap.times['detected'], now)}, ` : ''}
              {swap.from.includes(node) ? `went to ${swap.to.join(', ') || 'no node yet'}` : `came from ${swap.from.join(', ')}`} ({swap.cause})
            </span>
            <div className="quiet small">
              {STAGES.flatMap(([stage, name]) => (swap.seconds[stage] === undefined ? [] : [`${name.toLowerCase()} ${secondsWords(swap.seconds[stage])}`])).join(', ')}
              {swap.seconds['total'] !== undefined && `; ${secondsWords(swap.seconds['total'])} in all`}
            </div>
          </span>
          <SwapState swap={swap} />
        </li>
      ))}
    </ul>
  )
}

function SwapState({ swap }: { swap: Swap }) {
  return swap.state === 'Recovered' ? <Badge tone="good" icon="check" word="Recovered" /> : <Badge tone="busy" icon="half" word="Recovering" />
}
