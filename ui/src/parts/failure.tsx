/** A page that fails says so, and takes nothing else with it. */
import { Component, type ReactNode } from 'react'

interface Props {
  /** a new one begins anew, such as the address of another page */
  place: string
  children: ReactNode
}

export class FailureBoundary extends Component<Props, { place: string; error: Error | null }> {
  override state = { place: this.props.place, error: null as Error | null }

  static getDerivedStateFromError(error: unknown) {
    return { error: error instanceof Error ? error : new Error(String(error)) }
  }

  static getDerivedStateFromProps(props: Props, state: { place: string; error: Error | null }) {
    return props.place === state.place ? null : { place: props.place, error: null }
  }

  override render() {
    const { error } = this.state
    if (!error) return this.props.children
    return (
      <div className="notice bad stack" role="alert">
        <p>
          <strong>This page has failed.</strong> The other pages work. The fault is the dashboard’s: {error.message}
        </p>
        <p>
          <button type="button" className="button" onClick={() => this.setState({ error: null })}>
            Show the page again
          </button>
        </p>
      </div>
    )
  }
}
