/** The field for a date to come, and what the cluster is planned to have then. The address keeps the date. */
import { useEffect, useId, useState, type ReactNode } from 'react'
import { useAnswer } from '../api/answers'
import type { Listed, PlannedCapacity } from '../api/types'
import { now as clockNow, useNow } from '../clock'
import { DAYS_AHEAD, dateFault, fromField, fromWritten, inField, written, zoneAt } from '../dates'
import { useNamespace, useView } from '../view'
import { clock, count, fullTime, isAccelerator, list, number, quantity } from '../words'
import { Failure, Panel, Scroll } from './panel'

/** Rows of the answer about the date of the address; null without a date that can be asked about. */
export interface AsOf {
  at: number | null
  /** what is wrong with the date of the address, "" = nothing */
  fault: string
  rows: readonly PlannedCapacity[] | undefined
  failure: ReactNode
}

export function useAsOf(): AsOf {
  const namespace = useNamespace()
  const text = useView().get('at')
  const now = useNow(30)
  const asked = text ? fromWritten(text) : null
  const fault = text ? dateFault(asked, now) : ''
  const at = fault ? null : asked
  const answer = useAnswer<Listed<PlannedCapacity>>(at === null ? null : `api/capacity?namespace=${encodeURIComponent(namespace)}&at=${at}`, 60)
  return { at, fault, rows: answer.data?.items, failure: answer.error && !answer.data ? <Failure error={answer.error} again={answer.again} /> : null }
}

interface FieldProps {
  label: string
  value: number | null
  /** null: no date */
  onChange: (at: number | null) => void
  /** what is wrong with a date that does not come from the field */
  fault?: string
}

/** A date and a time of the browser's time zone, whose distance from UTC stands beside it. */
export function DateField({ label, value, onChange, fault = '' }: FieldProps) {
  const [text, setText] = useState(value === null ? '' : inField(value))
  const [own, setOwn] = useState('')
  const note = useId()
  useEffect(() => {
    if (value !== null) {
      setText(inField(value))
      setOwn('')
    } else if (!own) setText('')
    // what the person types stays while it is wrong
    // eslint-disable-next-line react-hooks/exhaustive-deps -- see above
  }, [value])
  const trouble = own || fault
  const change = (next: string) => {
    setText(next)
    const at = next ? fromField(next) : null
    const wrong = next ? dateFault(at, clockNow()) : ''
    setOwn(wrong)
    if (!next) onChange(null)
    else if (!wrong) onChange(at)
  }
  const shown = fromField(text)
  return (
    <span className="field date-field">
      <label className="field">
        <span>{label}</span>
        <input
          type="datetime-local" className="input" value={text} min={inField(clockNow())} max={inField(clockNow() + DAYS_AHEAD * 86_400)} onChange={(event) => change(event.target.value)} aria-invalid={trouble !== ''} aria-describedby={note}
        />
      </label>
      <span id={note} className={trouble ? 'small bad-text' : 'small quiet'} role="status">
        {trouble || zoneAt(shown ?? clockNow())}
      </span>
      {(text || fault) && (
        <button type="button" className="button" onClick={() => change('')}>
          Now
        </button>
      )}
    </span>
  )
}

export function AsOfField({ asOf }: { asOf: AsOf }) {
  const view = useView()
  return <DateField label="As of" value={asOf.at} fault={asOf.fault} onChange={(at) => view.set({ at: at === null ? '' : written(at) })} />
}

/** The answer, in panels: quotas where they are asked for, then open windows and usable nodes. */
export function AsOfPanels({ asOf, quotas = false }: { asOf: AsOf; quotas?: boolean }) {
  const { at, rows, failure } = asOf
  if (at === null) return null
  if (!rows) return failure ? <>{failure}</> : <p className="quiet small">The answer is on its way.</p>
  const of = (level: PlannedCapacity['level']) => rows.filter((row) => row.level === level)
  const when = `${fullTime(at)} (${zoneAt(at)})`
  return (
    <>
      {quotas && (
        <Panel title={`Quotas as of ${when}`} aside={<span className="quiet small">as QuotaPlans say</span>}>
          <Quotas rows={of('ClusterQueue')} />
        </Panel>
      )}
      <Panel title={`Windows as of ${when}`} aside={<span className="quiet small">of Reservations and maintenances</span>}>
        <Windows rows={of('Reservation')} />
      </Panel>
      <Panel title={`Usable capacity as of ${when}`} aside={<span className="quiet small">nodes are taken as they are now, except in windows</span>}>
        <Capacity rows={of('Flavor')} />
      </Panel>
    </>
  )
}

function Quotas({ rows }: { rows: readonly PlannedCapacity[] }) {
  const now = useNow(30)
  if (!rows.length) return <p className="quiet">There is no ClusterQueue that you may see.</p>
  return (
    <Scroll label="Quotas at that time">
      <table className="plain">
        <thead>
          <tr>
            <th scope="col">ClusterQueue</th>
            <th scope="col">Flavor</th>
            <th scope="col" className="number">Owns then</th>
            <th scope="col" className="number">Owns now</th>
            <th scope="col" className="number">May borrow</th>
            <th scope="col" className="number">May lend</th>
            <th scope="col">QuotaPlan</th>
          </tr>
        </thead>
        <tbody>
          {rows.flatMap((row) =>
            row.quotas.map((quota, index) => (
              <tr key={`${row.name} ${quota.flavor} ${quota.resource}`}>
                <th scope="row">{index === 0 ? row.name : <span className="unseen">{row.name}</span>}</th>
                <td className="nowrap">
                  {quota.flavor}
                  {!isAccelerator(quota.resource) && <span className="quiet"> {quota.resource}</span>}
                </td>
                <td className={quota.nominal === quota.nominalNow ? 'number' : 'number strong'}>{quota.nominal}</td>
                <td className="number">{quota.nominalNow}</td>
                <td className="number">{quota.borrowingLimit ?? 'no limit'}</td>
                <td className="number">{quota.lendingLimit ?? 'no limit'}</td>
                <td>
                  {index === 0 && row.plan && (row.overrides.length ? `${row.plan}: ${row.overrides.join(', ')}` : row.plan)}
                  {index === 0 && row.knownUntil !== null && <span className="quiet"> known until {clock(row.knownUntil, now)}</span>}
                </td>
              </tr>
            )),
          )}
        </tbody>
      </table>
    </Scroll>
  )
}

/** Names of nodes that are listed of one window. */
const SOME = 8

function Windows({ rows }: { rows: readonly PlannedCapacity[] }) {
  const now = useNow(30)
  if (!rows.length) return <p className="quiet">No window is open then.</p>
  return (
    <ul className="rows">
      {rows.map((row) => (
        <li key={row.name}>
          <span>
            {row.name}: {row.owners.length ? `kept for ${list(row.owners)}` : 'maintenance'} <span className="quiet">{row.firm.toLowerCase()}</span>
            <div className="quiet small">
              {count(row.nodes, 'node')}: {row.nodeNames.slice(0, SOME).join(', ')}
              {row.nodes > SOME && ` and ${number(row.nodes - SOME)} more`}
            </div>
          </span>
          <span className="nowrap">{row.from !== null && row.to !== null && `${clock(row.from, now)} – ${clock(row.to, now)}`}</span>
        </li>
      ))}
    </ul>
  )
}

function Capacity({ rows }: { rows: readonly PlannedCapacity[] }) {
  const found = rows.flatMap((row) => row.amounts.map((amount) => ({ row, amount })))
  if (!found.length) return <p className="quiet">No node of a flavor offers GPUs.</p>
  return (
    <Scroll label="Usable capacity at that time">
      <table className="plain">
        <thead>
          <tr>
            <th scope="col">Flavor</th>
            <th scope="col" className="number">Usable then</th>
            <th scope="col" className="number">Usable now</th>
            <th scope="col" className="number">Kept for others</th>
            <th scope="col" className="number">In maintenance</th>
            <th scope="col" className="number">Not usable</th>
            <th scope="col" className="number">In all</th>
            <th scope="col" className="number">Usable nodes</th>
          </tr>
        </thead>
        <tbody>
          {found.map(({ row, amount }) => (
            <tr key={`${row.name} ${amount.resource}`}>
              <th scope="row" title={amount.resource}>{row.name}</th>
              <td className={amount.usable === amount.usableNow ? 'number' : 'number strong'}>{number(quantity(amount.usable))}</td>
              {[amount.usableNow, amount.reserved, amount.maintenance, amount.unusable, amount.total].map((each, index) => (
                <td key={index} className="number">{number(quantity(each))}</td>
              ))}
              <td className="number">
                {number(row.usableNodes)} of {number(row.nodes)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  )
}
