/** A uPlot chart in the page's colours. What it shows also stands in `label`, for those who do not see it. */
import { useEffect, useRef } from 'react'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { useTheme } from '../theme'

export interface Palette {
  text: string
  quiet: string
  line: string
  accent: string
  used: string
  plan: string
  free: string
  wait: string
  bad: string
  good: string
  borrow: string
  panel: string
}

function palette(): Palette {
  const style = getComputedStyle(document.documentElement)
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim()
  return {
    text: of('text'), quiet: of('quiet'), line: of('line'), accent: of('accent'), used: of('bar-used'), plan: of('bar-plan'), free: of('bar-free'),
    wait: of('wait'), bad: of('bad'), good: of('good'), borrow: of('borrow'), panel: of('panel'),
  }
}

export type ChartOptions = Omit<uPlot.Options, 'width' | 'height'>

interface Props {
  data: uPlot.AlignedData
  /** has to be the same function for the same chart: a new one draws the chart anew */
  options: (colours: Palette) => ChartOptions
  height?: number
  label: string
}

export function Chart({ data, options, height = 160, label }: Props) {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot>(null)
  const latest = useRef(data)
  const look = useTheme()

  useEffect(() => {
    const element = box.current
    if (!element) return
    const colours = palette()
    const size = Number.parseFloat(getComputedStyle(document.documentElement).fontSize)
    const font = `${Math.round(size * 0.82)}px system-ui, sans-serif`
    const given = options(colours)
    const axes = (given.axes ?? [{}, {}]).map((axis) => ({
      stroke: colours.quiet, font, grid: { stroke: colours.line, width: 1 }, ticks: { stroke: colours.line, size: 4, width: 1 }, ...axis,
    }))
    const scaled = Math.round((height * size) / 14)
    const made = new uPlot(
      { ...given, axes, width: element.clientWidth, height: scaled, legend: { show: false }, cursor: { show: false, ...given.cursor } },
      latest.current,
      element,
    )
    plot.current = made
    const watching = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: scaled }))
    watching.observe(element)
    return () => {
      watching.disconnect()
      made.destroy()
      plot.current = null
    }
  }, [options, height, look])

  useEffect(() => {
    latest.current = data
    plot.current?.setData(data)
  }, [data])

  return <div className="chart" ref={box} role="img" aria-label={label} />
}

/** Ticks of a time axis as the rest of the page words them. */
export const timeAxis: uPlot.Axis = {
  size: 28,
  values: (_plot, splits, _axis, _space, step) =>
    splits.map((at) => {
      const when = new Date(at * 1000)
      if (step >= 86400) return when.toLocaleDateString('en-GB', { day: 'numeric', month: 'short' })
      const clock = when.toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })
      return clock === '00:00' ? when.toLocaleDateString('en-GB', { day: 'numeric', month: 'short' }) : clock
    }),
}
