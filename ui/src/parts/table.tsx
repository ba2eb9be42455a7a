/**
 * One table for all lists: sorted, grouped, with rows made only where they are seen.
 * A row is rendered again only if its object, its selection or the columns change.
 */
import {
  columnGroupingFeature, columnVisibilityFeature, createExpandedRowModel, createGroupedRowModel, createSortedRowModel, rowExpandingFeature, rowSortingFeature,
  tableFeatures, useTable as useModel, type ColumnDef, type ExpandedState, type Row,
} from '@tanstack/react-table'
import { useVirtualizer } from '@tanstack/react-virtual'
import { memo, useCallback, useLayoutEffect, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from 'react'
import { count, number } from '../words'
import { Icon } from './icons'

export interface Column<T> {
  id: string
  header: string
  /** what the column sorts and groups by; undefined and null stand at the end */
  value: (row: T) => string | number | null | undefined
  cell?: (row: T) => ReactNode
  /** in rem; the column without a width takes the rest */
  width?: number
  number?: boolean
  /** the least width of the table, in rem, at which the column is shown unless it was chosen */
  from?: number
  /** whether the first click sorts the largest first */
  largestFirst?: boolean
  title?: string
}

const features = tableFeatures({
  rowSortingFeature, columnVisibilityFeature, columnGroupingFeature, rowExpandingFeature,
  sortedRowModel: createSortedRowModel(), groupedRowModel: createGroupedRowModel(), expandedRowModel: createExpandedRowModel(),
})
type Features = typeof features

const byText = new Intl.Collator('en', { numeric: true, sensitivity: 'base' })

export function compare(a: unknown, b: unknown): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b
  return byText.compare(typeof a === 'string' ? a : '', typeof b === 'string' ? b : '')
}

interface Props<T> {
  rows: readonly T[]
  id: (row: T) => string
  /** what a person calls the row: the label of its checkbox */
  name?: (row: T) => string
  columns: readonly Column<T>[]
  label: string
  /** a column's id, with `-` before it for the largest first; "" = as the rows come */
  sort?: string
  onSort?: (sort: string) => void
  group?: string
  groupNote?: (rows: T[]) => ReactNode
  /** ids of columns that were chosen; empty: those for which there is room */
  shown?: readonly string[]
  selected?: ReadonlySet<string>
  onSelect?: (selected: ReadonlySet<string>) => void
  selectable?: (row: T) => boolean
  empty?: ReactNode
  /** fills the page and scrolls in itself */
  fill?: boolean
  /** stands in a box with a margin of its own */
  plain?: boolean
}

const HEIGHT = 1.9
const ALL_OPEN: ExpandedState = true

export function DataTable<T extends object>(props: Props<T>) {
  const { rows, id, name = id, columns, label, sort = '', onSort, group = '', groupNote, shown, selected, onSelect, selectable, empty, fill = false, plain = false } = props
  const box = useRef<HTMLDivElement>(null)
  const { width, rem } = useSize(box)
  const [open, setOpen] = useState<ExpandedState>(ALL_OPEN)

  const visible = useMemo(() => {
    const chosen = shown?.length ? new Set(shown) : null
    return columns.filter((column) => (chosen ? chosen.has(column.id) : column.id !== group && (width === 0 || (column.from ?? 0) * rem <= width)))
  }, [columns, shown, width, rem, group])

  // one column takes what is left
  const growing = visible.some((column) => column.width === undefined) ? undefined : [...visible].sort((a, b) => (b.width ?? 0) - (a.width ?? 0))[0]

  const defs = useMemo<ColumnDef<Features, T>[]>(
    () =>
      columns.map((column) => ({
        id: column.id,
        accessorFn: (row: T) => column.value(row) ?? undefined,
        sortUndefined: 'last' as const,
        sortFn: (a: Row<Features, T>, b: Row<Features, T>) => compare(a.getValue(column.id), b.getValue(column.id)),
        getGroupingValue: (row: T) => column.value(row) ?? '',
      })),
    [columns],
  )
  const sorting = useMemo(() => (sort ? [{ id: sort.replace(/^-/, ''), desc: sort.startsWith('-') }].filter((by) => columns.some((column) => column.id === by.id)) : []), [sort, columns])
  const grouping = useMemo(() => (columns.some((column) => column.id === group) ? [group] : []), [group, columns])
  const data = rows as T[]
  const model = useModel<Features, T>({
    features, columns: defs, data, getRowId: id, autoResetExpanded: false, groupedColumnMode: false,
    state: { sorting, grouping, expanded: open },
    onExpandedChange: setOpen,
  })
  const lines = model.getRowModel().rows

  const virtualizer = useVirtualizer({
    count: lines.length, getScrollElement: () => box.current, estimateSize: () => HEIGHT * rem, overscan: 12, enabled: fill,
    getItemKey: (index) => lines[index]?.id ?? index,
    initialRect: { width: 800, height: 700 },
  })
  useLayoutEffect(() => virtualizer.measure(), [virtualizer, rem])

  const latest = useRef({ selected, onSelect })
  useLayoutEffect(() => {
    latest.current = { selected, onSelect }
  })
  const toggle = useCallback((row: string) => {
    const { selected: before, onSelect: tell } = latest.current
    if (!before || !tell) return
    const next = new Set(before)
    if (!next.delete(row)) next.add(row)
    tell(next)
  }, [])

  const items = fill ? virtualizer.getVirtualItems() : []
  const first = items[0]
  const last = items[items.length - 1]
  const shownLines = fill ? items.map((item) => [lines[item.index], item.index] as const) : lines.map((line, index) => [line, index] as const)
  const span = visible.length + (onSelect ? 1 : 0)

  const onKeyDown = (event: KeyboardEvent<HTMLTableSectionElement>) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const target = event.target as HTMLElement
    const line = target.closest('tr')
    if (!line) return
    const index = Number(line.dataset['index'])
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 15, PageUp: -15 }[event.key]
    if (step !== undefined) {
      event.preventDefault()
      const next = Math.min(lines.length - 1, Math.max(0, index + step))
      if (fill) virtualizer.scrollToIndex(next)
      focusLine(box.current, next)
    } else if (event.key === 'x' && line.dataset['id']) {
      toggle(line.dataset['id'])
    }
  }

  const candidates = useMemo(() => (onSelect ? rows.filter((row) => selectable?.(row) ?? true).map(id) : []), [rows, onSelect, selectable, id])
  const all = candidates.length > 0 && candidates.every((each) => selected?.has(each))

  return (
    <div className={fill ? 'table-box fill' : 'table-box'} ref={box} {...(fill ? { tabIndex: 0, role: 'region', 'aria-label': label } : {})}>
      <table className={plain ? 'fixed plain' : 'fixed'} aria-label={label} aria-rowcount={lines.length + 1}>
        <colgroup>
          {onSelect && <col style={{ width: '2.4rem' }} />}
          {visible.map((column) => (
            <col key={column.id} style={column.width === undefined || column === growing ? undefined : { width: `${column.width}rem` }} />
          ))}
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            {onSelect && (
              <th scope="col">
                <input type="checkbox" className="check" aria-label="Select all rows that are shown" checked={all} onChange={() => onSelect(all ? new Set() : new Set(candidates))} disabled={candidates.length === 0} />
              </th>
            )}
            {visible.map((column) => (
              <HeaderCell key={column.id} column={column} sort={sort} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody onKeyDown={onKeyDown}>
          {first && first.start > 0 && (
            <tr className="pad-row" aria-hidden="true">
              <td colSpan={span} style={{ height: first.start }} />
            </tr>
          )}
          {shownLines.map(([line, index]) =>
            line === undefined ? null : line.getIsGrouped() ? (
              <GroupLine key={line.id} line={line} index={index} span={span} column={columns.find((column) => column.id === group)} note={groupNote} open={line.getIsExpanded()} />
            ) : (
              <Line key={line.id} row={line.original} id={line.id} name={name(line.original)} index={index} columns={visible} selected={selected?.has(line.id) ?? false} toggle={onSelect ? toggle : undefined} selectable={!onSelect || (selectable?.(line.original) ?? true)} />
            ),
          )}
          {last && (
            <tr className="pad-row" aria-hidden="true">
              <td colSpan={span} style={{ height: Math.max(0, virtualizer.getTotalSize() - last.end) }} />
            </tr>
          )}
        </tbody>
      </table>
      {lines.length === 0 && <div className="empty">{empty ?? 'There is nothing to show.'}</div>}
    </div>
  )
}

/** Focus a row's link, or the row where it has none. A row that was out of sight is there some frames later. */
function focusLine(box: HTMLElement | null, index: number, tries = 6): void {
  requestAnimationFrame(() => {
    const line = box?.querySelector<HTMLElement>(`tr[data-index="${index}"]`)
    if (line) (line.querySelector<HTMLElement>('a, button') ?? line).focus()
    else if (tries > 0) focusLine(box, index, tries - 1)
  })
}

function HeaderCell<T>({ column, sort, onSort }: { column: Column<T>; sort: string; onSort: ((sort: string) => void) | undefined }) {
  const mine = sort.replace(/^-/, '') === column.id
  const desc = mine && sort.startsWith('-')
  const first = column.largestFirst ? `-${column.id}` : column.id
  const second = column.largestFirst ? column.id : `-${column.id}`
  const next = !mine ? first : sort === first ? second : ''
  return (
    <th scope="col" className={column.number ? 'number' : undefined} aria-sort={mine ? (desc ? 'descending' : 'ascending') : undefined} title={column.title}>
      {onSort ? (
        <button type="button" className="sort" onClick={() => onSort(next)}>
          <span className="clip">{column.header}</span>
          {mine && <Icon name={desc ? 'down' : 'up'} />}
        </button>
      ) : (
        column.header
      )}
    </th>
  )
}

interface LineProps<T> {
  row: T
  id: string
  name: string
  index: number
  columns: readonly Column<T>[]
  selected: boolean
  selectable: boolean
  toggle: ((id: string) => void) | undefined
}

function PlainLine<T>({ row, id, name, index, columns, selected, selectable, toggle }: LineProps<T>) {
  return (
    <tr tabIndex={-1} data-index={index} data-id={selectable ? id : undefined} aria-rowindex={index + 2} aria-selected={toggle ? selected : undefined}>
      {toggle && (
        <td>
          <input type="checkbox" className="check" aria-label={`Select ${name}`} checked={selected} disabled={!selectable} onChange={() => toggle(id)} />
        </td>
      )}
      {columns.map((column) => {
        const value = column.value(row)
        const text = typeof value === 'number' ? number(value) : value
        return (
          <td key={column.id} className={column.number ? 'number' : undefined} title={!column.cell && typeof value === 'string' ? value : undefined}>
            {column.cell ? column.cell(row) : text}
          </td>
        )
      })}
    </tr>
  )
}

const Line = memo(PlainLine) as typeof PlainLine

interface GroupProps<T extends object> {
  line: Row<Features, T>
  index: number
  span: number
  column: Column<T> | undefined
  note: ((rows: T[]) => ReactNode) | undefined
  open: boolean
}

function GroupLine<T extends object>({ line, index, span, column, note, open }: GroupProps<T>) {
  const value = column ? line.getValue<string | number | undefined>(column.id) : ''
  const members = line.getLeafRows().map((each) => each.original)
  return (
    <tr className="group-row" data-index={index} aria-rowindex={index + 2}>
      <td colSpan={span}>
        <button type="button" aria-expanded={open} onClick={line.getToggleExpandedHandler()}>
          <Icon name={open ? 'down' : 'right'} />
          {value === '' || value === undefined ? `no ${column?.header.toLowerCase() ?? 'value'}` : value}
          <span className="quiet">{note ? note(members) : count(members.length, 'row')}</span>
        </button>
      </td>
    </tr>
  )
}

/** Width of an element and the size of a rem, both in pixels. */
export function useSize(box: React.RefObject<HTMLElement | null>): { width: number; rem: number } {
  const [size, setSize] = useState({ width: 0, rem: 14 })
  useLayoutEffect(() => {
    const element = box.current
    if (!element) return
    const measure = () => {
      const rem = Number.parseFloat(getComputedStyle(document.documentElement).fontSize)
      setSize((before) => (before.width === element.clientWidth && before.rem === rem ? before : { width: element.clientWidth, rem }))
    }
    measure()
    const watching = new ResizeObserver(measure)
    watching.observe(element)
    return () => watching.disconnect()
  }, [box])
  return size
}
